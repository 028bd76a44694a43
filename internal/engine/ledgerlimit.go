package engine

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// LedgerFull is the reason for a node if the ledger of a resource that a policy would allocate to
// the pod there has as many pods as a ledger can hold ([snapshot.MaxLedgerPods]): the allocation of
// another pod would fail. So no policy needs to know the limit.
var LedgerFull = &policy.Reason{
	Code: "LedgerFull",
	Text: "512 pods have allocations of a resource that the pod requests, the limit of a ledger",
	Unit: "free places",
}

// ledgerLimit is the Filter of a policy that allocates, which also rejects with LedgerFull, for one
// pod.
type ledgerLimit struct {
	reserver  policy.Reserver
	filter    policy.Filter    // or nil
	explainer policy.Explainer // or nil

	pod  *corev1.Pod
	view *snapshot.View
	// pools are those that are full in the View. Without any, the verdicts depend on the node and
	// what the pod requests alone.
	pools []*snapshot.Ledger
}

func (l *ledgerLimit) Filter(n *snapshot.Node) policy.Verdict {
	if l.filter != nil {
		if v := l.filter.Filter(n); !v.Fits() {
			return v
		}
	}
	if full := l.full(n); full != nil {
		here := slices.ContainsFunc(full.Pods, func(p snapshot.LedgerPod) bool { return p.Node == n.Name })
		return policy.Verdict{Reason: LedgerFull, Unresolvable: !here, Want: 1}
	}
	return policy.Verdict{}
}

// full returns the ledger that cannot hold an allocation of the pod for the node; nil: there is
// none.
func (l *ledgerLimit) full(n *snapshot.Node) *snapshot.Ledger {
	for _, ledger := range n.Ledgers {
		if len(ledger.Pods) >= snapshot.MaxLedgerPods && l.needs(n, ledger) {
			return ledger
		}
	}
	for _, pool := range l.pools {
		if l.needs(n, pool) && len(pool.Pods)-l.leaving(n, pool) >= snapshot.MaxLedgerPods {
			return pool
		}
	}
	return nil
}

// needs reports whether the pod would have to get an allocation in the ledger.
func (l *ledgerLimit) needs(n *snapshot.Node, ledger *snapshot.Ledger) bool {
	if ledger.Pod(l.pod.UID) != nil {
		return false
	}
	keys, err := l.reserver.Ledgers(l.pod, n) // with an error, the allocation has it, too
	return err == nil && slices.Contains(keys, ledger.Key())
}

// leaving returns how many pods with allocations in the pool the View has on the node, and n has
// not: preemption evicts them.
func (l *ledgerLimit) leaving(n *snapshot.Node, pool *snapshot.Ledger) int {
	was, sum := l.view.Node(n.Name), 0
	for i := range pool.Pods {
		if uid := pool.Pods[i].UID; was != nil && was != n && was.Has(uid) && !n.Has(uid) {
			sum++
		}
	}
	return sum
}

func (l *ledgerLimit) Explain(n *snapshot.Node) (lines []string) {
	if l.explainer != nil {
		lines = l.explainer.Explain(n)
	}
	if n == nil {
		return lines
	}
	if full := l.full(n); full != nil {
		lines = append(lines, fmt.Sprintf("allocations of %s: %d pods have some, the limit of a ledger", full.Resource, len(full.Pods)))
	}
	return lines
}
