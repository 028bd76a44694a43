package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RetryAnnotation is set on a pending pod to make kube-scheduler retry it; its value is the time.
const RetryAnnotation = "outboard.dev/retry"

// RetryPod makes kube-scheduler retry the pod once, if it is pending there: any change of an
// unscheduled pod does that. found is false if there is no pod of that name with that UID. An error
// is that of the API server: see apierrors.IsForbidden.
func (c *Cluster) RetryPod(ctx context.Context, namespace, name string, uid types.UID) (found bool, err error) {
	_, err = c.stamp(ctx, namespace, name, RetryAnnotation, map[string]any{"uid": uid}, nil)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return false, nil
	}
	return err == nil, err
}

// NominatePod is like RetryPod, and sets the node that kube-scheduler tries first; "": none. It
// changes nothing if the pod has changed since the watch showed it: kube-scheduler may have evicted
// pods for it on another node.
func (c *Cluster) NominatePod(ctx context.Context, pod *corev1.Pod, node string) (found bool, err error) {
	_, err = c.stamp(ctx, pod.Namespace, pod.Name, RetryAnnotation, map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		map[string]any{"nominatedNodeName": node})
	switch {
	case apierrors.IsConflict(err):
		return true, nil
	case apierrors.IsNotFound(err), apierrors.IsInvalid(err):
		return false, nil
	}
	return err == nil, err
}

// stamp sets an annotation of the pod to the current time, and of its status what is not nil. The
// metadata has the UID: the API server rejects a patch with another one as invalid, because a UID
// is immutable. stamp patches the pod's status, which includes annotations, so that it does not
// need the permission to change the pod's spec.
func (c *Cluster) stamp(ctx context.Context, namespace, name, annotation string, metadata, status map[string]any) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.BindTimeout)
	defer cancel()
	now := time.Now().UTC().Format(time.RFC3339Nano)
	metadata["annotations"] = map[string]string{annotation: now}
	changes := map[string]any{"metadata": metadata}
	if status != nil {
		changes["status"] = status
	}
	patch, err := json.Marshal(changes)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", namespace, name, err)
	}
	pod, err := c.client.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil && pod.Annotations[annotation] != now {
		return nil, fmt.Errorf("pod %s/%s: the API server did not store the annotation %s, and the pod has not changed", namespace, name, annotation)
	}
	return pod, err
}
