package extender

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// manages reports whether the profile manages the pod: kube-scheduler does not call an extender for
// pods that request none of its managedResources.
func (h *Handler) manages(pod *corev1.Pod) bool {
	return len(h.ManagedResources) == 0 || slices.ContainsFunc(h.ManagedResources, func(r string) bool { return snapshot.NamesResource(pod, corev1.ResourceName(r)) })
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
		Pod:        decision.PodOf(req.Pod),
		Generation: req.View.Generation(), Nodes: n, Fit: n, Returned: n, Unmanaged: true,
	}
}
