package cluster

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// templates finds, for a pod just read, another one that it was probably made
// from the same template as, so that the two can share memory. A wrong guess
// costs memory and nothing else.
//
// It belongs to one goroutine.
type templates struct {
	pods  map[templateKey]*corev1.Pod
	swept int // number of templates after the last sweep
}

type templateKey struct{ namespace, container, image string }

func keyOf(pod *corev1.Pod) templateKey {
	key := templateKey{namespace: pod.Namespace}
	if len(pod.Spec.Containers) > 0 {
		key.container, key.image = pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Image
	}
	return key
}

// like returns the pod of the same template that was seen last, and takes pod in
// its place. Nil if it is the first.
func (t *templates) like(pod *corev1.Pod) *corev1.Pod {
	key := keyOf(pod)
	last := t.pods[key]
	if t.pods == nil {
		t.pods = map[templateKey]*corev1.Pod{}
	}
	t.pods[key] = pod
	return last
}

// sweep forgets the templates that no pod has any more, when there may be many.
func (t *templates) sweep(live func(yield func(*corev1.Pod) bool)) {
	if len(t.pods) < 2*t.swept+1000 {
		return
	}
	used := map[templateKey]*corev1.Pod{}
	for pod := range live {
		used[keyOf(pod)] = pod
	}
	t.pods, t.swept = used, len(used)
}

// share makes pod use the memory of like wherever they are equal. pod must not be
// known to anyone yet; like is only read.
func share(pod, like *corev1.Pod) {
	adopt(&pod.Namespace, like.Namespace)
	adopt(&pod.Spec.NodeName, like.Spec.NodeName)
	adopt(&pod.Spec.SchedulerName, like.Spec.SchedulerName)
	adopt(&pod.Spec.ServiceAccountName, like.Spec.ServiceAccountName)
	adopt(&pod.Spec.DeprecatedServiceAccount, pod.Spec.ServiceAccountName)
	adopt(&pod.Spec.PriorityClassName, like.Spec.PriorityClassName)
	adoptDeep(&pod.Labels, like.Labels)
	adoptDeep(&pod.Annotations, like.Annotations)
	adoptDeep(&pod.OwnerReferences, like.OwnerReferences)
	adoptDeep(&pod.Spec.InitContainers, like.Spec.InitContainers)
	adoptDeep(&pod.Spec.Containers, like.Spec.Containers)
	adoptDeep(&pod.Spec.Volumes, like.Spec.Volumes)
	adoptDeep(&pod.Spec.NodeSelector, like.Spec.NodeSelector)
	adoptDeep(&pod.Spec.Affinity, like.Spec.Affinity)
	adoptDeep(&pod.Spec.Tolerations, like.Spec.Tolerations)
	adoptDeep(&pod.Spec.TopologySpreadConstraints, like.Spec.TopologySpreadConstraints)
	adoptDeep(&pod.Spec.Overhead, like.Spec.Overhead)
	adoptDeep(&pod.Spec.Resources, like.Spec.Resources)
	adoptDeep(&pod.Spec.ResourceClaims, like.Spec.ResourceClaims)
	adoptDeep(&pod.Status.Conditions, like.Status.Conditions)
}

func adopt(part *string, like string) {
	if *part == like {
		*part = like
	}
}

func adoptDeep[T any](part *T, like T) {
	if equality.Semantic.DeepEqual(*part, like) {
		*part = like
	}
}
