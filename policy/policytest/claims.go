package policytest

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// goneUnit is the name of a unit that no node has.
const goneUnit = "policytest-gone"

// claims calls the policy for a pod that holds what Reserve chose for it, and for one that holds the same amount of
// units that no longer exist.
func (s *suite) claims(c *testCase) {
	reserver, ok := s.policy.(policy.Reserver)
	if !ok || c.pod.UID == "" || c.cluster.strangers {
		return
	}
	w, prep := s.fresh(c, s.policy)
	filter, ok := prep.cycle.(policy.Filter)
	if !ok {
		return
	}
	for _, n := range w.nodes[:w.known] {
		if n.Has(c.pod.UID) || !filter.Filter(n).Fits() {
			continue
		}
		where := c.name + ", " + nodeName(n)
		var chosen []*snapshot.Ledger
		if crash := guard(func() { chosen = claimed(reserver, c, w.view, n) }); crash != "" {
			s.fail("survives", where, "Reserve %s", crash)
			return
		}
		var gone []*snapshot.Ledger
		for _, l := range chosen {
			gone = append(gone, ofGoneUnits(l, c.pod.UID))
		}
		s.held(c, where+", with the claim that Reserve chose", n.Name, chosen, true)
		s.held(c, where+", with a claim of units that are gone", n.Name, gone, false)
	}
}

// claimed returns the ledgers with what the pod would claim on the node; none if it would not get everything.
func claimed(reserver policy.Reserver, c *testCase, view *snapshot.View, n *snapshot.Node) []*snapshot.Ledger {
	keys, err := reserver.Ledgers(c.pod, n)
	if err != nil {
		return nil
	}
	var ledgers []*snapshot.Ledger
	for _, key := range keys {
		l := view.Ledger(key)
		if l == nil {
			l = &snapshot.Ledger{Resource: key.Resource, Node: key.Node}
		}
		at := l.LastAt.Add(time.Second)
		claim, verdict := reserver.Reserve(policy.ReserveRequest{Pod: c.pod, Node: n, Ledger: l, View: view, At: at})
		if !verdict.Fits() {
			return nil
		}
		next := &snapshot.Ledger{Resource: key.Resource, Node: key.Node, LastAt: at, Pods: slices.Clone(l.Pods)}
		for _, capacity := range claim.Units {
			u := snapshot.LedgerUnit{Name: capacity.Unit, Capacity: capacity.Capacity}
			if old := l.Unit(u.Name); old != nil {
				u.Claims = slices.Clone(old.Claims)
			}
			for _, a := range claim.Amounts {
				if a.Unit == u.Name {
					u.Claims = append(u.Claims, snapshot.LedgerClaim{Pod: c.pod.UID, Amount: a.Amount})
				}
			}
			next.Units = append(next.Units, u)
		}
		next.Pods = append(next.Pods, snapshot.LedgerPod{
			UID: c.pod.UID, Namespace: c.pod.Namespace, Name: c.pod.Name, Node: n.Name, At: at, Annotations: claim.Annotations,
		})
		ledgers = append(ledgers, next)
	}
	return ledgers
}

// ofGoneUnits returns a copy of the ledger with the pod's claims moved to a unit that does not exist.
func ofGoneUnits(l *snapshot.Ledger, uid types.UID) *snapshot.Ledger {
	var sum int64
	for i := range l.Units {
		sum = snapshot.AddAmounts(sum, l.Units[i].Amount(uid))
	}
	moved := *l
	moved.Units = slices.Clone(l.Without(func(other types.UID) bool { return other == uid }).Units)
	moved.Units = append(moved.Units, snapshot.LedgerUnit{Name: goneUnit, Claims: []snapshot.LedgerClaim{{Pod: uid, Amount: sum}}})
	return &moved
}

// held compares Filter's verdict about a pod with these claims with what ValidateClaim and Reserve return.
func (s *suite) held(c *testCase, where, node string, ledgers []*snapshot.Ledger, asChosen bool) {
	if len(ledgers) == 0 {
		return
	}
	w := c.cluster.build(func(b *snapshot.Builder) {
		if s.options.Extend != nil {
			s.options.Extend(b)
		}
		for _, l := range ledgers {
			b.SetLedger(l)
		}
	}, asPublished)
	n := w.view.Node(node)
	want := true
	crash := guard(func() {
		for _, l := range ledgers {
			want = s.usable(c, where, w.view, n, l, asChosen) && want
		}
	})
	if crash != "" {
		s.fail("survives", where, "called for the claim, it %s", crash)
		return
	}
	got := prepare(context.Background(), s.policy, c.pod.DeepCopy(), w.view).evaluate([]*snapshot.Node{n}, forward(1))
	if got.panicked != "" {
		s.fail("survives", where, "%s", got.panicked)
		return
	}
	if len(got.verdicts) == 0 || got.verdicts[0].Fits() != want {
		said := "nothing"
		if len(got.verdicts) > 0 {
			said = describe(got.verdicts[0])
		}
		s.fail("claims", where, "the pod can be bound: %t, but Filter returns %s", want, said)
	}
}

// usable reports whether the pod can be bound with its claims in the ledger, or with what Reserve would choose instead.
func (s *suite) usable(c *testCase, where string, view *snapshot.View, n *snapshot.Node, l *snapshot.Ledger, asChosen bool) bool {
	validator, ok := s.policy.(policy.ClaimValidator)
	if !ok {
		return true
	}
	ask := policy.ReserveRequest{Pod: c.pod, Node: n, Ledger: l, View: view, At: l.LastAt}
	after, verdict := validator.ValidateClaim(ask)
	if slices.Contains(after, c.pod.UID) {
		s.fail("claims", where, "ValidateClaim returns the pod itself as one to bind before it")
	}
	if verdict.Fits() {
		return true
	}
	if asChosen {
		s.fail("claims", where, "ValidateClaim returns %s for what Reserve has just chosen", describe(verdict))
	}
	s.reason(where, verdict.Reason)
	ask.Ledger = l.Without(func(uid types.UID) bool { return uid == c.pod.UID })
	_, verdict = s.policy.(policy.Reserver).Reserve(ask)
	return verdict.Fits()
}
