package extender

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/engine"
)

// manages reports whether the profile manages the pod: kube-scheduler does not call an extender for
// pods that request none of its managedResources.
func (h *Handler) manages(pod *corev1.Pod) bool {
	return len(h.ManagedResources) == 0 || slices.ContainsFunc(h.ManagedResources, func(r string) bool { return asksFor(pod, corev1.ResourceName(r)) })
}

// unmanaged returns the result for a pod that the profile does not manage, as if kube-scheduler had
// not called: all nodes fit, and all scores are equal.
func unmanaged(req engine.Request, result *engine.Result) {
	n := len(req.Nodes)
	result.Kept, result.Rejected, result.Totals = result.Kept[:0], result.Rejected[:0], append(result.Totals[:0], make([]int64, n)...)
	for i := range n {
		result.Kept = append(result.Kept, int32(i))
	}
	result.Record = &decision.Record{
		Pod:        decision.Pod{Namespace: req.Pod.Namespace, Name: req.Pod.Name, UID: string(req.Pod.UID)},
		Generation: req.View.Generation(), Asked: n, Fit: n, Returned: n, Unmanaged: true,
	}
}

// asksFor reports whether the pod requests the resource by kube-scheduler's rule for managedResources: in a request or
// limit of a container or init container, even with the value 0.
func asksFor(pod *corev1.Pod, name corev1.ResourceName) bool {
	in := func(c corev1.Container) bool {
		_, requested := c.Resources.Requests[name]
		_, limited := c.Resources.Limits[name]
		return requested || limited
	}
	return slices.ContainsFunc(pod.Spec.Containers, in) || slices.ContainsFunc(pod.Spec.InitContainers, in)
}
