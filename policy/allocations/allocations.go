// Package allocations counts which pods hold which units of a node, for policies that allocate
// countable resources. A pod with allocations in the ledger holds what the ledger says. Any other
// pod on the node holds what its annotations or requests say, as the policy reads them. A pod that
// is being bound is not counted against itself.
package allocations

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// MaxCapacity bounds a unit, so that neither the sum over the units of a node overflows, nor a
// hundred times that.
const MaxCapacity = 1 << 50

// AllocatedPod is a pod with allocations in a ledger.
type AllocatedPod struct {
	Holder
	// Entry is the pod's entry in the ledger; nil if the ledger holds only the allocations.
	Entry *snapshot.LedgerPod
	// Index is that of the pod in the Pods of the node; -1 if it is not on the node yet.
	Index int
	// Total is the sum of its allocations over all units.
	Total int64
}

// Allocated is what an allocatedPod holds of one unit.
type Allocated struct {
	*AllocatedPod
	Unit   string
	Amount int64
}

// On returns what pods hold of the node by their allocations in the ledger, which may be nil, in
// the order of the ledger, and the indices of the other pods on the node. No pod is in both.
func On(n *snapshot.Node, ledger *snapshot.Ledger) (allocated []Allocated, unallocated []int) {
	var pods map[types.UID]*AllocatedPod
	if ledger != nil {
		pods = make(map[types.UID]*AllocatedPod, len(ledger.Pods))
		allocated = make([]Allocated, 0, len(ledger.Pods))
		for i := range ledger.Units {
			for _, c := range ledger.Units[i].Allocations {
				pod := pods[c.Pod]
				if pod == nil {
					pod = &AllocatedPod{Holder: Holder{UID: c.Pod}, Index: -1}
					pods[c.Pod] = pod
				}
				pod.Total = snapshot.AddAmounts(pod.Total, c.Amount)
				allocated = append(allocated, Allocated{pod, ledger.Units[i].Name, c.Amount})
			}
		}
		for i := range ledger.Pods {
			if pod := pods[ledger.Pods[i].UID]; pod != nil {
				pod.Entry = &ledger.Pods[i]
				pod.Namespace, pod.Name = pod.Entry.Namespace, pod.Entry.Name
			}
		}
	}
	unallocated = make([]int, 0, len(n.Pods))
	for i, on := range n.Pods {
		if pod := pods[on.UID]; pod != nil {
			pod.Index, pod.Holder = i, HolderOf(on)
		} else {
			unallocated = append(unallocated, i)
		}
	}
	return allocated, unallocated
}

// Of yields the units on which the pod has allocations, and the amounts. It yields nothing if the
// ledger is nil or does not list the pod.
func Of(ledger *snapshot.Ledger, pod types.UID) iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		if ledger.Pod(pod) == nil {
			return
		}
		for i := range ledger.Units {
			u := &ledger.Units[i]
			if amount := u.Amount(pod); amount > 0 && !yield(u.Name, amount) {
				return
			}
		}
	}
}

// Serves reports whether the units have what the pod has allocated of them in the ledger, if
// anything. capacity returns that of a unit, and 0 for one that cannot be used.
func Serves(ledger *snapshot.Ledger, pod types.UID, capacity func(unit string) int64) bool {
	for unit, amount := range Of(ledger, pod) {
		if amount > capacity(unit) {
			return false
		}
	}
	return true
}

// Others returns the node and the ledger of a request without the pod that is to be bound: the pod
// may be on the node already, or hold allocations of an earlier attempt.
func Others(ask policy.ReserveRequest) (*snapshot.Node, *snapshot.Ledger) {
	own := func(uid types.UID) bool { return uid == ask.Pod.UID && uid != "" }
	return ask.Node.Without(func(pod *corev1.Pod) bool { return own(pod.UID) }), ask.Ledger.Without(own)
}

// Without returns a copy of the ledger without the allocations of the pod. A Filter computes the
// usage of a node with the copy if the pod cannot use what it has allocated there: the allocation
// will be released. This is rare enough to compute the usage again.
func Without(ledger *snapshot.Ledger, pod types.UID) *snapshot.Ledger {
	return ledger.Without(func(uid types.UID) bool { return uid == pod })
}

// Holders is a set of pods that hold something of a node. The zero value is empty.
type Holders []types.UID

// Add adds a pod. It ignores the one with the UID "".
func (h *Holders) Add(pod types.UID) {
	if pod != "" {
		*h = append(*h, pod)
	}
}

// Has reports whether the pod is in the set.
func (h Holders) Has(pod types.UID) bool { return slices.Contains(h, pod) }
