package engine

import (
	"cmp"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/snapshot"
)

// Planned returns the pod with the annotations that it would get on the node at this time.
// allocations is false if it needs no allocation. If it cannot get what it needs, its allocations
// fail later.
func (e *Engine) Planned(view *snapshot.View, pod *corev1.Pod, node *snapshot.Node, at time.Time) (planned *corev1.Pod, allocations bool) {
	r, _, err := e.dryRun(view, pod, node, at)
	if err != nil {
		return pod, true
	}
	return WithAnnotations(pod, r.Annotations), len(r.Held) > 0
}

// Holdings returns what the pod would get on the node at this time, which is not later than any
// allocation in the view; nil if it needs no further allocation, or cannot get what it needs.
func (e *Engine) Holdings(view *snapshot.View, pod *corev1.Pod, node *snapshot.Node, at time.Time) []decision.Allocation {
	r, fits, err := e.dryRun(view, pod, node, at)
	if err != nil || !fits {
		return nil
	}
	return r.Record()
}

// HeldBy returns what the pod holds by the ledgers of the view: of units of its node, and of pools.
// The node may be nil.
func HeldBy(view *snapshot.View, pod types.UID, node *snapshot.Node) (all []decision.Allocation) {
	if node != nil {
		for _, l := range node.Ledgers {
			all = appendAllocations(all, l.Resource, amounts(l, pod))
		}
	}
	for l := range view.Pools() {
		all = appendAllocations(all, l.Resource, amounts(l, pod))
	}
	return all
}

// plannedOn returns the pod with the annotations for what the policies would allocate to it from
// the node's own ledgers. fits is false if a policy rejects the pod. The result depends on the pod
// and the node alone, and not on the View, which changes more often.
func (e *Engine) plannedOn(node *snapshot.Node, pod *corev1.Pod) (planned *corev1.Pod, fits bool) {
	r, fits, err := e.dryRun(nil, pod, node, time.Unix(0, 0))
	if err != nil {
		return pod, false
	}
	return WithAnnotations(pod, r.Annotations), fits
}

var noView = new(snapshot.View)

// dryRun makes the allocations of the pod, and changes no ledger. Without a view, it leaves out
// those in ledgers that nodes share. fits is false if a policy rejects the pod.
func (e *Engine) dryRun(view *snapshot.View, pod *corev1.Pod, node *snapshot.Node, at time.Time) (r Reservation, fits bool, err error) {
	allocations, err := e.Allocations(cmp.Or(view, noView), pod, node)
	fits = true
	for i := 0; i < len(allocations) && err == nil; i++ {
		held, key := HeldAllocation{Allocation: allocations[i]}, allocations[i].Key
		if view != nil || key.Node == node.Name {
			l := node.Ledger(key.Resource)
			if view != nil {
				l = view.Ledger(key)
			}
			var failed error
			held, failed = allocations[i].dryRun(cmp.Or(l, &snapshot.Ledger{Resource: key.Resource, Node: key.Node}), at)
			fits = fits && failed == nil
		}
		r, err = r.With(held)
	}
	return r, fits, err
}

// dryRun returns the allocation as it would be made in the ledger. Of an existing allocation of the
// pod that the policy can use, it returns no amounts; it replaces any other.
func (c Allocation) dryRun(l *snapshot.Ledger, at time.Time) (HeldAllocation, error) {
	pod := c.request.Pod.UID
	if existing := l.Pod(pod); existing != nil {
		if _, err := c.choose(l, existing.At); err == nil {
			return HeldAllocation{Allocation: c, Pod: *existing}, nil
		}
		l = l.Without(func(uid types.UID) bool { return uid == pod })
	}
	allocation, err := c.choose(l, at)
	return HeldAllocation{Allocation: c, Pod: snapshot.LedgerPod{Annotations: allocation.Annotations}, Amounts: allocation.Amounts}, err
}

// WithAnnotations returns a copy of the pod with the annotations added. It does not change the pod.
func WithAnnotations(pod *corev1.Pod, annotations map[string]string) *corev1.Pod {
	if len(annotations) == 0 {
		return pod
	}
	with := *pod // shallow: the annotations are replaced, not changed
	with.Annotations = maps.Clone(pod.Annotations)
	if with.Annotations == nil {
		with.Annotations = map[string]string{}
	}
	maps.Copy(with.Annotations, annotations)
	return &with
}
