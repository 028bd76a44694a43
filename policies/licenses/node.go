package licenses

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/claims"
	"outboard.dev/outboard/snapshot"
)

// nodeSeats are the node-locked seats of a feature on one node.
type nodeSeats struct {
	total, used int64
	holders     claims.Holders
}

// nodeSeatsOf counts the seats with the given ledger, which may be nil. A pod in the ledger holds
// what the ledger says, and any other pod on the node what it requests.
func (p *licenses) nodeSeatsOf(f *feature, n *snapshot.Node, ledger *snapshot.Ledger) nodeSeats {
	l := nodeSeats{total: *f.SeatsPerNode, used: used(ledger)}
	claimants, unclaimed := claims.On(n, ledger)
	for uid := range claimants {
		l.holders.Add(claims.PodOf(uid))
	}
	for _, pod := range unclaimed {
		needs, err := p.request(pod)
		if err != nil {
			continue // its request is invalid
		}
		for _, need := range needs {
			if need.feature == f {
				l.used = snapshot.AddAmounts(l.used, need.seats)
				l.holders.Add(claims.PodOf(pod.UID))
			}
		}
	}
	return l
}

func (l *nodeSeats) free() int64 { return max(0, l.total-l.used) }

func (l *nodeSeats) evaluate(seats int64) policy.Verdict {
	switch {
	case seats > l.total:
		return policy.Verdict{Reason: tooFewNodeSeats, Unresolvable: true, Have: l.total, Want: seats}
	case seats > l.free():
		return policy.Verdict{Reason: noFreeNodeSeat, Have: l.free(), Want: seats}
	}
	return policy.Verdict{}
}

// boundPod is a pod on a node that needs floating seats of a feature.
type boundPod struct {
	feature         *feature
	uid             types.UID
	namespace, name string
	node            string
	boundAt         time.Time
	seats           int64
}

// boundPodsOf lists these pods for a node. A pod with an invalid request requests nothing.
func (p *licenses) boundPodsOf(n *snapshot.Node) []boundPod {
	var bound []boundPod
	for _, pod := range n.Pods {
		needs, err := p.request(pod)
		if err != nil {
			continue
		}
		at, known := snapshot.BoundBefore(pod)
		if !known {
			at = unknownTime
		}
		for _, need := range needs {
			if need.feature.floating() {
				bound = append(bound, boundPod{need.feature, pod.UID, pod.Namespace, pod.Name, n.Name, at, need.seats})
			}
		}
	}
	return bound
}
