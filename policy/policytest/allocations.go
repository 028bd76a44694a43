package policytest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

const goneUnit = "policytest-gone"

// allocations calls the policy for a pod that holds what Reserve chose for it, and for one that
// holds the same amount of units that no longer exist.
func (s *suite) allocations(c *testCase) {
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
		if crash := guard(func() { chosen = s.allocated(reserver, c.pod, where, w.view, n) }); crash != "" {
			s.fail("survives", where, "Reserve %s", crash)
			return
		}
		var gone []*snapshot.Ledger
		for _, l := range chosen {
			gone = append(gone, ofGoneUnits(l, c.pod.UID))
		}
		s.held(c, where+", with the allocation that Reserve chose", n.Name, chosen, true)
		s.held(c, where+", with an allocation of units that are gone", n.Name, gone, false)
		if c.cluster.name == givenNodes {
			s.fill(reserver, c, where, n.Name, chosen)
			for _, other := range s.options.Pods {
				other = other.DeepCopy()
				if snapshot.TrimPod(other); c.unchanged && other.UID != c.pod.UID {
					s.next(reserver, c, other, fmt.Sprintf("%s, then pod %q", where, podName(other)), n.Name, chosen)
				}
			}
		}
	}
}

// maxFill is how many more pods fill allocations from the same ledgers.
const maxFill = 8

// fill lets equal pods allocate from the same ledgers, until Filter rejects one. Then the pod with
// the first allocation still fits, and Reserve chooses nothing for another one, even with a View in
// which the ledgers are empty.
func (s *suite) fill(reserver policy.Reserver, c *testCase, where, node string, ledgers []*snapshot.Ledger) {
	for i := 0; i < maxFill && len(ledgers) > 0; i++ {
		pod := c.pod.DeepCopy()
		pod.UID, pod.Name = types.UID(fmt.Sprintf("policytest-%d", i)), fmt.Sprintf("policytest-%d", i)
		after := fmt.Sprintf("%s, after %d allocations", where, i+1)
		next, full := s.next(reserver, c, pod, after, node, ledgers)
		if full {
			empty, _ := s.fresh(c, s.policy)
			crash := guard(func() {
				for _, l := range ledgers {
					s.choose(reserver, after, policy.ReserveRequest{Pod: pod, Node: empty.view.Node(node), Ledger: l, View: empty.view, At: l.LastAt.Add(time.Second)})
				}
			})
			if crash != "" {
				s.fail("survives", after, "called for a full ledger, Reserve %s", crash)
			}
			s.held(c, after+", of which the first is its own", node, ledgers, true)
			return
		}
		ledgers = next
	}
}

// next returns the ledgers with what another pod allocates from them. full is true if the pod does
// not fit. A unit of which pods have allocations keeps its capacity.
func (s *suite) next(reserver policy.Reserver, c *testCase, pod *corev1.Pod, where, node string, ledgers []*snapshot.Ledger) (next []*snapshot.Ledger, full bool) {
	w := c.cluster.build(s.withLedgers(ledgers))
	crash := guard(func() {
		filter, ok := prepare(context.Background(), s.policy, pod, w.view).cycle.(policy.Filter)
		if full = !ok || !filter.Filter(w.view.Node(node)).Fits(); !full {
			next = s.allocated(reserver, pod, where, w.view, w.view.Node(node))
		}
	})
	if crash != "" {
		s.fail("survives", where, "called for more pods, it %s", crash)
		return nil, false
	}
	for _, l := range next {
		i := slices.IndexFunc(ledgers, func(before *snapshot.Ledger) bool { return before.Key() == l.Key() })
		for j := 0; i >= 0 && j < len(ledgers[i].Units); j++ {
			u := &ledgers[i].Units[j]
			if left := l.Unit(u.Name); u.Used() > 0 && left.Capacity < u.Capacity {
				s.fail("allocations", where, "Reserve changes the capacity of unit %q, which has allocations, from %d to %d: Allocation.Units lists all units of the ledger", u.Name, u.Capacity, left.Capacity)
			}
		}
	}
	return next, full
}

func (s *suite) withLedgers(ledgers []*snapshot.Ledger) func(*snapshot.Builder) {
	return func(b *snapshot.Builder) {
		if s.options.Extend != nil {
			s.options.Extend(b)
		}
		for _, l := range ledgers {
			b.SetLedger(l)
		}
	}
}

// choose calls Reserve, checks what it returns, and returns the ledger with the allocation, as
// Outboard writes it; nil if it cannot be written, or the policy chooses none.
func (s *suite) choose(reserver policy.Reserver, where string, ask policy.ReserveRequest) (*snapshot.Ledger, policy.Verdict) {
	before, _ := json.Marshal(ask.Ledger) // it has no value that cannot be marshaled
	allocation, verdict := reserver.Reserve(ask)
	again, verdictAgain := reserver.Reserve(ask)
	if !reflect.DeepEqual(allocation, again) || verdict != verdictAgain {
		s.fail("allocations", where, "Reserve returns first %+v, %s, then %+v, %s for the same request", allocation, describe(verdict), again, describe(verdictAgain))
	}
	if after, _ := json.Marshal(ask.Ledger); !bytes.Equal(before, after) {
		s.fail("read-only", where, "Reserve changed the ledger")
	}
	if !verdict.Fits() {
		return nil, verdict
	}
	entry := snapshot.LedgerPod{UID: ask.Pod.UID, Namespace: ask.Pod.Namespace, Name: ask.Pod.Name, Node: ask.Node.Name}
	next, _, err := ledger.Allocate(*ask.Ledger, entry, func(*snapshot.Ledger, time.Time) (policy.Allocation, error) { return allocation, nil }, ask.At)
	for key, value := range allocation.Annotations {
		if len(value) > snapshot.MaxAllocationAnnotation {
			err = fmt.Errorf("annotation %q has %d bytes, the limit is %d", key, len(value), snapshot.MaxAllocationAnnotation)
		}
	}
	if err != nil {
		s.fail("allocations", where, "Reserve chose %+v: %v", allocation, err)
		return nil, verdict
	}
	return &next, verdict
}

// allocated returns the ledgers with what the pod would allocate on the node, on which it fits;
// none if it would not get everything.
func (s *suite) allocated(reserver policy.Reserver, pod *corev1.Pod, where string, view *snapshot.View, n *snapshot.Node) []*snapshot.Ledger {
	keys, err := reserver.Ledgers(pod, n)
	if err != nil {
		return nil
	}
	requested := func(r corev1.ResourceName) bool { return snapshot.NamesResource(pod, r) }
	if in := s.inputs(); len(keys)*len(in.Resources) > 0 && !in.AnyPod && !slices.ContainsFunc(in.Resources, requested) {
		s.fail("allocations", where, "the pod requests none of Inputs().Resources, and Inputs().AnyPod is false: kube-scheduler does not call for the pod")
	}
	var ledgers []*snapshot.Ledger
	for _, key := range keys {
		if key.Resource == "" {
			s.fail("allocations", where, "Ledgers returns a key without a Resource")
			return nil
		}
		l := view.Ledger(key)
		if l == nil {
			l = &snapshot.Ledger{Resource: key.Resource, Node: key.Node}
		}
		next, verdict := s.choose(reserver, where, policy.ReserveRequest{Pod: pod, Node: n, Ledger: l, View: view, At: l.LastAt.Add(time.Second)})
		if !verdict.Fits() {
			s.fail("allocations", where, "the pod fits by Filter, but Reserve returns %s for the same ledger", describe(verdict))
		}
		if next == nil {
			return nil
		}
		ledgers = append(ledgers, next)
	}
	return ledgers
}

// ofGoneUnits returns a copy of the ledger with the pod's allocations moved to a unit that does not
// exist.
func ofGoneUnits(l *snapshot.Ledger, uid types.UID) *snapshot.Ledger {
	var sum int64
	for i := range l.Units {
		sum = snapshot.AddAmounts(sum, l.Units[i].Amount(uid))
	}
	moved := *l
	moved.Units = slices.Clone(l.Without(func(other types.UID) bool { return other == uid }).Units)
	moved.Units = append(moved.Units, snapshot.LedgerUnit{Name: goneUnit, Allocations: []snapshot.LedgerAllocation{{Pod: uid, Amount: sum}}})
	return &moved
}

// held compares Filter's verdict about a pod with these allocations with what ValidateAllocation
// and Reserve return.
func (s *suite) held(c *testCase, where, node string, ledgers []*snapshot.Ledger, asChosen bool) {
	if len(ledgers) == 0 {
		return
	}
	w := c.cluster.build(s.withLedgers(ledgers))
	n := w.view.Node(node)
	want := true
	crash := guard(func() {
		for _, l := range ledgers {
			want = s.usable(c, where, w.view, n, l, asChosen) && want
		}
	})
	if crash != "" {
		s.fail("survives", where, "called for the allocation, it %s", crash)
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
		s.fail("allocations", where, "the pod can be bound: %t, but Filter returns %s", want, said)
	}
}

// usable reports whether the pod can be bound with its allocations in the ledger, or with what
// Reserve would choose instead.
func (s *suite) usable(c *testCase, where string, view *snapshot.View, n *snapshot.Node, l *snapshot.Ledger, asChosen bool) bool {
	validator, ok := s.policy.(policy.AllocationValidator)
	if !ok {
		return true
	}
	ask := policy.ReserveRequest{Pod: c.pod, Node: n, Ledger: l, View: view, At: l.LastAt}
	after, verdict := validator.ValidateAllocation(ask)
	if slices.Contains(after, c.pod.UID) {
		s.fail("allocations", where, "ValidateAllocation returns the pod itself as one to bind before it")
	}
	if verdict.Fits() {
		return true
	}
	if asChosen {
		s.fail("allocations", where, "ValidateAllocation returns %s for what Reserve has just chosen", describe(verdict))
	}
	s.reason(where, verdict.Reason)
	ask.Ledger = l.Without(func(uid types.UID) bool { return uid == c.pod.UID })
	_, verdict = s.policy.(policy.Reserver).Reserve(ask)
	return verdict.Fits()
}
