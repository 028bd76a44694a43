package snapshot

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/resource"
)

const (
	// maxCached is how much memory a pod takes in a cache of pods, in bytes, by [PodSize], so that
	// the pods of one tenant cannot fill it: 30,000 pods of MaxPod bytes would take 1.9 GiB. Pods
	// of three or four containers are smaller.
	maxCached = 8 << 10
	// maxResources is how many extended resources a pod with hundreds of containers has.
	maxResources = 8
)

// reducedBy is the manager in the managed fields of a reduced pod. A trimmed pod has no managed
// fields, so nobody can forge it.
const reducedBy = "outboard.dev/reduced"

// IsReduced reports whether ReducePod has removed parts of the pod, so that the pod itself cannot
// be evaluated: to place it, it is read from the call of kube-scheduler or from the API server.
func IsReduced(pod *corev1.Pod) bool {
	return len(pod.ManagedFields) == 1 && pod.ManagedFields[0].Manager == reducedBy
}

// ReducePod removes, in place, parts of a trimmed pod of more than 8 KiB until it takes that much:
//
//  1. what only decisions about the pod itself read, and annotations longer than a claim has
//  2. the containers: one has what kube-scheduler counts of all, and 8 extended resources
//  3. the longest annotations and labels
//
// Of a pod on a node, policies and disruption budgets read labels, requests and short annotations.
// So decisions about other pods are the same with the reduced pod, unless complete is false: then
// step 3, or a resource that is not among the first 8 by name, was removed. Whether a pod is
// reduced depends on that pod alone.
func ReducePod(pod *corev1.Pod) (complete bool) {
	if PodSize(pod) <= maxCached {
		return true
	}
	pod.ObjectMeta = metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		Generation: pod.Generation, CreationTimestamp: pod.CreationTimestamp,
		DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		Labels: pod.Labels, Annotations: pod.Annotations, OwnerReferences: controllers(pod),
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: reducedBy}},
	}
	maps.DeleteFunc(pod.Annotations, func(_, value string) bool { return len(value) > MaxAllocationAnnotation })
	pod.Spec = corev1.PodSpec{
		NodeName: pod.Spec.NodeName, SchedulerName: pod.Spec.SchedulerName, RestartPolicy: pod.Spec.RestartPolicy,
		Priority: pod.Spec.Priority, PriorityClassName: pod.Spec.PriorityClassName, PreemptionPolicy: pod.Spec.PreemptionPolicy,
		Overhead: pod.Spec.Overhead, Resources: pod.Spec.Resources,
		InitContainers: requesting(pod.Spec.InitContainers), Containers: requesting(pod.Spec.Containers),
		SchedulingGates: pod.Spec.SchedulingGates[:min(1, len(pod.Spec.SchedulingGates))],
	}
	pod.Status.Conditions = bindingConditions(pod.Status.Conditions)
	pod.Status.ResourceClaimStatuses = nil
	complete = PodSize(pod) <= maxCached || mergeContainers(pod)
	return !limitTexts(PodSize(pod)-maxCached, &pod.Annotations, &pod.Labels) && complete
}

func controllers(pod *corev1.Pod) []metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return []metav1.OwnerReference{*owner}
	}
	return nil
}

// requesting returns the containers with what they request; the status of a pod that is resized
// refers to their names.
func requesting(containers []corev1.Container) []corev1.Container {
	kept := make([]corev1.Container, len(containers))
	for i, c := range containers {
		kept[i] = corev1.Container{Name: c.Name, Resources: *withoutClaims(&c.Resources), RestartPolicy: c.RestartPolicy}
	}
	return kept
}

// bindingConditions returns the conditions that say when the pod was bound, and whether it is
// resized.
func bindingConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	var kept []corev1.PodCondition
	for _, c := range conditions {
		switch c.Type {
		case corev1.PodScheduled, corev1.PodReady, corev1.PodResizePending, corev1.PodResizeInProgress:
			c.Message = ""
			kept = append(kept, c)
		}
	}
	return kept
}

// mergeContainers replaces the containers by one, with the amounts with which kube-scheduler counts
// the pod unless it is being resized. complete is false if a resource was removed: the amounts of
// very many are not added up, because anybody may name them.
func mergeContainers(pod *corev1.Pod) (complete bool) {
	s := &pod.Status
	s.ContainerStatuses, s.InitContainerStatuses, s.AllocatedResources, s.Resources = nil, nil, nil, nil
	complete = limitResources(pod)
	pod.Spec.Containers = []corev1.Container{{Name: "all", Resources: corev1.ResourceRequirements{
		Requests: PodRequests(pod), Limits: resource.PodLimits(pod, options(false)),
	}}}
	pod.Spec.InitContainers, pod.Spec.Overhead, pod.Spec.Resources = nil, nil, nil
	return complete
}

// limitResources removes all but the first extended resources by name. Zeros, which fit on any
// node, do not count.
func limitResources(pod *corev1.Pod) (complete bool) {
	lists := []*corev1.ResourceList{&pod.Spec.Overhead}
	if pod.Spec.Resources = withoutClaims(pod.Spec.Resources); pod.Spec.Resources != nil {
		lists = append(lists, &pod.Spec.Resources.Requests, &pod.Spec.Resources.Limits)
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			lists = append(lists, &containers[i].Resources.Requests, &containers[i].Resources.Limits)
		}
	}
	kept := sets.New(corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage)
	others := sets.New[corev1.ResourceName]()
	for _, list := range lists {
		for name, amount := range *list {
			if amount.Sign() > 0 && !kept.Has(name) {
				others.Insert(name)
			}
		}
	}
	sorted := sets.List(others)
	kept.Insert(sorted[:min(maxResources, len(sorted))]...)
	for _, list := range lists {
		*list = maps.Clone(*list)
		maps.DeleteFunc(*list, func(name corev1.ResourceName, _ quantity.Quantity) bool { return !kept.Has(name) })
	}
	return len(sorted) <= maxResources
}
