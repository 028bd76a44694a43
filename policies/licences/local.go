package licences

import (
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// local is how a node's own seats of a feature stand.
type local struct {
	total, used int64
	holders     map[types.UID]struct{} // nil: none
	full        bool                   // the ledger can hold no more claims
}

// localOf counts with the given ledger, which may be nil. A pod in the ledger has what
// the ledger says, and any other on the node what it asks for.
func (p *licences) localOf(f *feature, n *snapshot.Node, ledger *snapshot.Ledger) local {
	l := local{total: *f.SeatsPerNode, used: used(ledger)}
	hold := func(uid types.UID) {
		if l.holders == nil {
			l.holders = map[types.UID]struct{}{}
		}
		l.holders[uid] = struct{}{}
	}
	if ledger != nil {
		l.full = len(ledger.Pods) >= snapshot.MaxLedgerPods
		for i := range ledger.Pods {
			hold(ledger.Pods[i].UID)
		}
	}
	for _, pod := range n.Pods {
		if l.holds(pod.UID) {
			continue
		}
		needs, err := p.needs(pod)
		if err != nil {
			continue // nobody knows what it has
		}
		for _, need := range needs {
			if need.feature == f {
				l.used = snapshot.AddAmounts(l.used, need.seats)
				if pod.UID != "" {
					hold(pod.UID)
				}
			}
		}
	}
	return l
}

// holds says whether the pod has seats of the node already.
func (l *local) holds(uid types.UID) bool {
	_, ok := l.holders[uid]
	return ok
}

func (l *local) free() int64 {
	if l.full {
		return 0
	}
	return max(0, l.total-l.used)
}

func (l *local) judge(seats int64) policy.Verdict {
	switch {
	case seats > l.total:
		return policy.Verdict{Reason: tooFewNodeSeats, Unresolvable: true, Have: l.total, Want: seats}
	case seats > l.free():
		return policy.Verdict{Reason: noFreeNodeSeat, Have: l.free(), Want: seats}
	}
	return policy.Verdict{}
}
