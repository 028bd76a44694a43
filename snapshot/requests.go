package snapshot

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/resource"
)

// PodRequests returns the resources with which kube-scheduler counts the pod. A pod without a node
// counts with what its spec requests. A pod on a node counts with what it holds there: while the
// kubelet resizes it in place, the maximum of what it requests, what the kubelet has allocated, and
// what its containers run with; and if the resize is infeasible, the maximum of the last two.
func PodRequests(pod *corev1.Pod) corev1.ResourceList {
	s := &pod.Status
	// For most pods, TrimPod leaves no such status, and reading the spec alone takes a third of the
	// time.
	reported := len(s.ContainerStatuses)+len(s.InitContainerStatuses) > 0 || s.AllocatedResources != nil || s.Resources != nil
	useStatus := pod.Spec.NodeName != "" && (reported || resource.IsPodResizeInfeasible(pod))
	alone := len(pod.Spec.Containers) == 1 && len(pod.Spec.InitContainers) == 0
	if !useStatus && alone && pod.Spec.Resources == nil && pod.Spec.Overhead == nil {
		if requests := pod.Spec.Containers[0].Resources.Requests; requests != nil {
			return requests.DeepCopy() // the same in a fraction of the time, for most pods
		}
	}
	return resource.PodRequests(pod, options(useStatus))
}

// options returns kube-scheduler's options. An API server without a feature reports nothing in the
// status fields of that feature.
func options(useStatus bool) resource.PodResourcesOptions {
	return resource.PodResourcesOptions{UseStatusResources: useStatus, InPlacePodLevelResourcesVerticalScalingEnabled: true}
}

// isResized reports whether the status of the pod changes what it counts with, or its limits.
func isResized(pod *corev1.Pod) bool {
	switch {
	case pod.Spec.NodeName == "":
		return false
	case resource.IsPodResizeInfeasible(pod):
		return true
	case isAsSpecified(pod):
		return false
	}
	return !equality.Semantic.DeepEqual(resource.PodRequests(pod, options(true)), resource.PodRequests(pod, options(false))) ||
		!equality.Semantic.DeepEqual(resource.PodLimits(pod, options(true)), resource.PodLimits(pod, options(false)))
}

// isAsSpecified reports whether a quick comparison finds that the status reports no more than the
// spec requests. The kubelet reports the resources of every pod, and few pods are being resized.
func isAsSpecified(pod *corev1.Pod) bool {
	within := func(statuses []corev1.ContainerStatus, containers []corev1.Container) bool {
		return !slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool {
			i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == s.Name })
			return i < 0 || !covers(containers[i].Resources.Requests, s.AllocatedResources) || s.Resources != nil &&
				(!covers(containers[i].Resources.Requests, s.Resources.Requests) || !covers(containers[i].Resources.Limits, s.Resources.Limits))
		})
	}
	return pod.Spec.Resources == nil && pod.Status.Resources == nil && pod.Status.AllocatedResources == nil &&
		within(pod.Status.ContainerStatuses, pod.Spec.Containers) && within(pod.Status.InitContainerStatuses, pod.Spec.InitContainers)
}

func covers(all, part corev1.ResourceList) bool {
	for name, amount := range part {
		if most, ok := all[name]; !ok || amount.Cmp(most) > 0 {
			return false
		}
	}
	return true
}

// resourceStatus returns what the status says about resources, and nothing else.
func resourceStatus(status *corev1.PodStatus) corev1.PodStatus {
	return corev1.PodStatus{
		ContainerStatuses:     containerResources(status.ContainerStatuses),
		InitContainerStatuses: containerResources(status.InitContainerStatuses),
		AllocatedResources:    status.AllocatedResources,
		Resources:             withoutClaims(status.Resources),
	}
}

func containerResources(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	if len(statuses) == 0 {
		return nil
	}
	kept := make([]corev1.ContainerStatus, len(statuses))
	for i, s := range statuses {
		kept[i] = corev1.ContainerStatus{Name: s.Name, AllocatedResources: s.AllocatedResources, Resources: withoutClaims(s.Resources)}
	}
	return kept
}

func withoutClaims(r *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if r == nil {
		return nil
	}
	return &corev1.ResourceRequirements{Requests: r.Requests, Limits: r.Limits}
}

// ExtendedResourceRequest returns how much of an extended resource the pod requests, 0 or more, by
// Kubernetes' rule: init containers run one after the other, before the containers, and at the same
// time as the sidecars started before them. It does not allocate.
//
// A pod on a node holds the same amount: only cpu and memory can be resized in place, see
// [PodRequests].
func ExtendedResourceRequest(pod *corev1.Pod, resource corev1.ResourceName) int64 {
	limit := func(c *corev1.Container) int64 {
		q, ok := c.Resources.Limits[resource]
		if !ok {
			return 0
		}
		return max(0, q.Value())
	}
	var sidecars, peak int64
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		n := AddAmounts(sidecars, limit(c))
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars = n
		}
		peak = max(peak, n)
	}
	sum := sidecars
	for i := range pod.Spec.Containers {
		sum = AddAmounts(sum, limit(&pod.Spec.Containers[i]))
	}
	return max(sum, peak)
}

// NamesResource reports whether a container or init container of the pod lists the resource in its
// requests or limits, even with 0: kube-scheduler's rule for managedResources.
func NamesResource(pod *corev1.Pod, name corev1.ResourceName) bool {
	in := func(c corev1.Container) bool {
		_, requested := c.Resources.Requests[name]
		_, limited := c.Resources.Limits[name]
		return requested || limited
	}
	return slices.ContainsFunc(pod.Spec.Containers, in) || slices.ContainsFunc(pod.Spec.InitContainers, in)
}

// DefaultRequests sets, in place, the requests that a pod does not make to its limits, as the API
// server does.
func DefaultRequests(pod *corev1.Pod) {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			for name, limit := range r.Limits {
				if _, ok := r.Requests[name]; ok {
					continue
				}
				if r.Requests == nil {
					r.Requests = corev1.ResourceList{}
				}
				r.Requests[name] = limit
			}
		}
	}
}
