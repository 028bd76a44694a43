// Package claims counts which pods hold which units of a node, for policies that allocate countable resources. A pod
// with claims in the ledger holds what the ledger says. Any other pod on the node holds what its annotations or
// requests say, as the policy reads them. A pod that is being bound is not counted against itself.
package claims

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Claimant is a pod with claims in a ledger.
type Claimant struct {
	// Holder identifies the pod.
	Holder Holder
	// Entry is the pod's entry in the ledger; nil if the ledger holds only the claims.
	Entry *snapshot.LedgerPod
	// Pod is the pod on the node; nil if it is not on the node yet.
	Pod *corev1.Pod
	// Index is that of Pod in the Pods of the node.
	Index int
	// Total is the sum of its claims over all units.
	Total int64
}

// On returns the pods that hold something of the node: those with claims in the ledger, by UID, and the other pods on
// the node, in the node's order. The ledger may be nil.
func On(n *snapshot.Node, ledger *snapshot.Ledger) (claimants map[types.UID]*Claimant, unclaimed []*corev1.Pod) {
	if ledger == nil || len(ledger.Units) == 0 {
		return nil, n.Pods
	}
	claimants = make(map[types.UID]*Claimant, len(ledger.Pods))
	for i := range ledger.Units {
		for _, claim := range ledger.Units[i].Claims {
			c := claimants[claim.Pod]
			if c == nil {
				c = &Claimant{Holder: Holder{UID: claim.Pod}}
				claimants[claim.Pod] = c
			}
			c.Total = snapshot.AddAmounts(c.Total, claim.Amount)
		}
	}
	for i := range ledger.Pods {
		if c := claimants[ledger.Pods[i].UID]; c != nil {
			c.Entry = &ledger.Pods[i]
			c.Holder.Namespace, c.Holder.Name = c.Entry.Namespace, c.Entry.Name
		}
	}
	for i, pod := range n.Pods {
		if c := claimants[pod.UID]; c != nil {
			c.Pod, c.Index, c.Holder = pod, i, HolderOf(pod)
		} else {
			unclaimed = append(unclaimed, pod)
		}
	}
	return claimants, unclaimed
}

// MaxCapacity bounds a unit, so that neither the sum over the units of a node overflows, nor a hundred times that.
const MaxCapacity = 1 << 50

// Of yields the units on which the pod has claims, and the amounts. It yields nothing if the ledger is nil or does not
// list the pod.
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

// Others returns the node and the ledger of a request without the pod that is to be bound: the pod
// may be on the node already, or hold claims of an earlier attempt.
func Others(ask policy.ReserveRequest) (*snapshot.Node, *snapshot.Ledger) {
	own := func(uid types.UID) bool { return uid == ask.Pod.UID && uid != "" }
	return ask.Node.Without(func(pod *corev1.Pod) bool { return own(pod.UID) }), ask.Ledger.Without(own)
}

// Without returns a copy of the ledger without the claims of the pod. A Filter computes the usage of a node with the copy if the pod
// cannot use what it has claimed there: the claim will be released. This is rare enough to compute the usage again.
func Without(ledger *snapshot.Ledger, pod types.UID) *snapshot.Ledger {
	return ledger.Without(func(uid types.UID) bool { return uid == pod })
}

// Holders is a set of pods that hold something of a node. The zero value is empty.
type Holders struct {
	uids []types.UID
	bits uint64 // union of the bits of all of them
}

// Add adds a pod. It ignores the one with the UID "".
func (h *Holders) Add(pod Pod) {
	if pod.UID != "" {
		h.uids = append(h.uids, pod.UID)
		h.bits |= pod.bit
	}
}

// Has reports whether the pod is in the set.
func (h *Holders) Has(pod Pod) bool {
	return h.bits&pod.bit != 0 && slices.Contains(h.uids, pod.UID)
}

// Pod is a pod to add to Holders, or to look up. A cycle makes it once.
type Pod struct {
	UID types.UID
	bit uint64 // rules out most nodes on which the pod holds nothing
}

// PodOf returns the Pod with the UID. A Pod with the UID "" is in no Holders.
func PodOf(uid types.UID) Pod { return Pod{uid, bitOf(uid)} }

// bitOf returns the bit of a UID: one of 64, and none for "".
func bitOf(uid types.UID) uint64 {
	if uid == "" {
		return 0
	}
	hash := uint32(2166136261) // FNV-1a
	for i := range len(uid) {
		hash = (hash ^ uint32(uid[i])) * 16777619
	}
	return 1 << (hash >> 26)
}
