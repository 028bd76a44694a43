package licenses

import (
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/claims"
	"outboard.dev/outboard/snapshot"
)

// nodeSeats are the node-locked seats of a feature on one node.
type nodeSeats struct {
	total, used int64
	holders     claims.Holders
	full        bool // the ledger can hold no more claims
}

// nodeSeatsOf counts the seats with the given ledger, which may be nil. A pod in the ledger holds
// what the ledger says, and any other pod on the node what it requests.
func (p *licenses) nodeSeatsOf(f *feature, n *snapshot.Node, ledger *snapshot.Ledger) nodeSeats {
	l := nodeSeats{total: *f.SeatsPerNode, used: used(ledger), full: ledger != nil && len(ledger.Pods) >= snapshot.MaxLedgerPods}
	claimants, unclaimed := claims.On(n, ledger)
	for uid := range claimants {
		l.holders.Add(uid)
	}
	for _, pod := range unclaimed {
		needs, err := p.needs(pod)
		if err != nil {
			continue // its request is invalid
		}
		for _, need := range needs {
			if need.feature == f {
				l.used = snapshot.AddAmounts(l.used, need.seats)
				l.holders.Add(pod.UID)
			}
		}
	}
	return l
}

func (l *nodeSeats) free() int64 {
	if l.full {
		return 0
	}
	return max(0, l.total-l.used)
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
