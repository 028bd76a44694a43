package licenses

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/snapshot"
)

// nodeSeats are the node-locked seats of a feature on one node.
type nodeSeats struct {
	total, used int64
	holders     []allocations.Held
}

// nodeSeatsOf counts the seats with the given ledger, which may be nil. A pod in the ledger holds
// what the ledger says, and any other pod on the node what it requests.
func (p *licenses) nodeSeatsOf(f *feature, n *snapshot.Node, ledger *snapshot.Ledger) nodeSeats {
	l := nodeSeats{total: *f.SeatsPerNode}
	enter := func(pod allocations.Holder, seats int64) {
		l.used = snapshot.AddAmounts(l.used, seats)
		l.holders = append(l.holders, allocations.Held{Holder: pod, Amount: seats})
	}
	allocated, unallocated := allocations.On(n, ledger)
	for _, c := range allocated {
		enter(c.Holder, c.Amount)
	}
	for _, i := range unallocated {
		needs, _ := p.request(n.Pods[i]) // none if the request is invalid
		for _, need := range needs {
			if need.feature == f {
				enter(allocations.HolderOf(n.Pods[i]), need.seats)
			}
		}
	}
	return l
}

func (l *nodeSeats) free() int64 { return max(0, l.total-l.used) }

func (l *nodeSeats) has(pod types.UID) bool {
	return pod != "" && slices.ContainsFunc(l.holders, func(h allocations.Held) bool { return h.UID == pod })
}

func (l *nodeSeats) evaluate(seats int64) policy.Verdict {
	switch {
	case seats > l.total:
		return policy.Verdict{Reason: tooFewNodeSeats, Unresolvable: true, Have: l.total, Want: seats}
	case seats > l.free():
		return policy.Verdict{Reason: noFreeNodeSeat, Have: l.free(), Want: seats}
	}
	return policy.Verdict{}
}
