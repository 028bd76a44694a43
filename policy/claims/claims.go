// Package claims is what policies that allocate something countable have in common: who has what
// of a node. A pod with claims in the ledger has what the ledger says. Any other pod on the node has
// what its annotations or requests say, as the policy reads them. A pod that is to get something is
// not counted against itself.
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
	// Entry is what the ledger says about the pod; nil if it does not say more than the claims.
	Entry *snapshot.LedgerPod
	// Pod is the pod on the node; nil if it is not there yet.
	Pod *corev1.Pod
	// Total is what it has of all units together.
	Total int64
}

// On returns the pods that have something of the node: those with claims in the ledger, by UID, and the
// pods on the node that have none, in the node's order. The ledger may be nil.
func On(n *snapshot.Node, ledger *snapshot.Ledger) (claimants map[types.UID]*Claimant, unclaimed []*corev1.Pod) {
	if ledger == nil || len(ledger.Units) == 0 {
		return nil, n.Pods
	}
	claimants = map[types.UID]*Claimant{}
	for i := range ledger.Units {
		for _, claim := range ledger.Units[i].Claims {
			c := claimants[claim.Pod]
			if c == nil {
				c = &Claimant{}
				claimants[claim.Pod] = c
			}
			c.Total = snapshot.AddAmounts(c.Total, claim.Amount)
		}
	}
	for i := range ledger.Pods {
		if c := claimants[ledger.Pods[i].UID]; c != nil {
			c.Entry = &ledger.Pods[i]
		}
	}
	for _, pod := range n.Pods {
		if c := claimants[pod.UID]; c != nil {
			c.Pod = pod
		} else {
			unclaimed = append(unclaimed, pod)
		}
	}
	return claimants, unclaimed
}

// Of yields the units of which the pod has claimed something, and how much; none if the ledger, which
// may be nil, does not list the pod.
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

// Others returns the node and the ledger of a request as they are without the pod that is to be
// bound: it may be on the node already, or have claims of an earlier attempt.
func Others(ask policy.ReserveRequest) (*snapshot.Node, *snapshot.Ledger) {
	own := func(uid types.UID) bool { return uid == ask.Pod.UID && uid != "" }
	return ask.Node.Without(func(pod *corev1.Pod) bool { return own(pod.UID) }), ask.Ledger.Without(own)
}

// Without returns the ledger without the claims of the pod.
func Without(ledger *snapshot.Ledger, pod types.UID) *snapshot.Ledger {
	return ledger.Without(func(uid types.UID) bool { return uid == pod })
}

// Holders are pods that have something of a node. The zero value is empty.
type Holders struct {
	uids []types.UID
	bits uint64 // of all of them
}

// Add adds a pod. One without a UID is not added.
func (h *Holders) Add(pod types.UID) {
	if pod != "" {
		h.uids = append(h.uids, pod)
		h.bits |= bitOf(pod)
	}
}

// Has says whether the pod is one of them.
func (h *Holders) Has(pod Pod) bool {
	return h.bits&pod.bit != 0 && slices.Contains(h.uids, pod.UID)
}

// Pod is a pod that may be among Holders. It is made once for a request.
type Pod struct {
	UID types.UID
	bit uint64 // by which most nodes on which it has nothing are told apart
}

// PodOf returns the Pod with the UID; with "" it is among no Holders.
func PodOf(uid types.UID) Pod { return Pod{uid, bitOf(uid)} }

// bitOf is the bit of a UID: one of 64, none of "".
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
