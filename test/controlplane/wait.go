package controlplane

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// WaitForPod watches the pod until it satisfies the condition and returns it as
// it was then. It fails when the condition does, when the pod is deleted, or
// when ctx ends; then the error has what the scheduler last said about the pod.
// The pod is found by namespace and name and, if that is set, UID.
func WaitForPod(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, condition func(*corev1.Pod) (bool, error)) (*corev1.Pod, error) {
	pods := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", pod.Namespace,
		fields.OneTermEqualSelector(metav1.ObjectNameField, pod.Name))
	var last *corev1.Pod
	_, err := watchtools.UntilWithSync(ctx, pods, &corev1.Pod{}, nil, func(event watch.Event) (bool, error) {
		seen, ok := event.Object.(*corev1.Pod)
		if !ok || (pod.UID != "" && seen.UID != pod.UID) {
			return false, nil
		}
		last = seen
		if event.Type == watch.Deleted {
			return false, errors.New("deleted")
		}
		return condition(seen)
	})
	if err == nil {
		return last, nil
	}
	return nil, fmt.Errorf("pod %s/%s: %w%s", pod.Namespace, pod.Name, ended(ctx, err), schedulerSays(last))
}

// ended returns the reason why ctx ended, if it did, and else err.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func schedulerSays(pod *corev1.Pod) string {
	if pod == nil {
		return " (not seen)"
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Message != "" {
			return fmt.Sprintf(" (%s: %s)", c.Reason, c.Message)
		}
	}
	return ""
}

// WaitForPodBound watches the pod until it is assigned to a node and returns it;
// see [WaitForPod].
func WaitForPodBound(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) (*corev1.Pod, error) {
	return WaitForPod(ctx, client, pod, func(p *corev1.Pod) (bool, error) {
		return p.Spec.NodeName != "", nil
	})
}

// WaitForPodEvent watches the events about the pod until there is one with the
// given reason, such as "FailedScheduling", and returns it. An event from
// before the call counts.
func WaitForPodEvent(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, reason string) (*corev1.Event, error) {
	selector := fields.Set{
		"involvedObject.kind": "Pod",
		"involvedObject.name": pod.Name,
		"reason":              reason,
	}
	if pod.UID != "" {
		selector["involvedObject.uid"] = string(pod.UID)
	}
	events := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "events", pod.Namespace, selector.AsSelector())
	found, err := watchtools.UntilWithSync(ctx, events, &corev1.Event{}, nil, func(event watch.Event) (bool, error) {
		return event.Type == watch.Added || event.Type == watch.Modified, nil
	})
	if err != nil {
		return nil, fmt.Errorf("event %s of pod %s/%s: %w", reason, pod.Namespace, pod.Name, ended(ctx, err))
	}
	return found.Object.(*corev1.Event), nil
}

// FollowPods calls f for each pod that the field selector selects, and for each of its changes, in order, until ctx ends. The API server
// may end a watch at any time, for instance if f is slow; FollowPods then goes on where that ended.
func FollowPods(ctx context.Context, client kubernetes.Interface, selector string, f func(watch.EventType, *corev1.Pod)) error {
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return err
	}
	for i := range list.Items {
		f(watch.Added, &list.Items[i])
	}
	changes, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return pods.Watch(ctx, o)
		},
	})
	if err != nil {
		return err
	}
	defer changes.Stop()
	for event := range changes.ResultChan() {
		if pod, ok := event.Object.(*corev1.Pod); ok {
			f(event.Type, pod)
		}
	}
	return context.Cause(ctx)
}

// FinishDeletions removes deleted pods, as a kubelet does, until ctx ends.
func FinishDeletions(ctx context.Context, client kubernetes.Interface) {
	_ = FollowPods(ctx, client, "", func(_ watch.EventType, pod *corev1.Pod) {
		if pod.DeletionTimestamp != nil {
			_ = DeletePod(ctx, client, pod) // it may be gone
		}
	})
}
