package licenses_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"outboard.dev/outboard/policies/licenses"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
)

const checkoutDelay = 5 * time.Minute

// simulation is a license server with users outside the cluster and with pods, which check out the
// seats that they have allocated some time before checkoutDelay ends.
type simulation struct {
	*world
	t               *testing.T
	policy          policy.Policy
	includesPods    bool
	total, reserved int64
	outside         int64                 // seats of users outside
	allocations     map[string]allocation // of pods, by name
	next            int
	at              time.Time // now
	read, used      int64     // the latest reading and its time (as UnixNano)
	endedSince      bool
	handed, refused int // allocations
}

type allocation struct {
	seats int64
	at    time.Time
	out   bool // checked out
	lost  bool // with the ledger
}

// ask reads the server.
func (s *simulation) ask(*rapid.T) {
	s.used, s.read, s.endedSince = s.outside, s.at.UnixNano(), false
	for name, c := range s.allocations {
		c.out = c.out || !s.at.Before(c.at.Add(checkoutDelay))
		s.allocations[name] = c
		if c.out && s.includesPods {
			s.used += c.seats
		}
	}
	at := s.at.Format(time.RFC3339Nano)
	s.signals = fmt.Sprintf("flexnet: {solver/total: {number: %d, at: %q}, solver/used: {number: %d, at: %q}}", s.total, at, s.used, at)
}

func (s *simulation) allocated() int64 {
	var sum int64
	for _, c := range s.allocations {
		sum += c.seats
	}
	return sum
}

// settled reports whether the server has counted exactly the pods with allocations.
func (s *simulation) settled() bool {
	for _, c := range s.allocations {
		at := c.at
		if c.lost { // the API server's time of the binding has whole seconds
			at = at.Truncate(time.Second).Add(time.Second)
		}
		if at.Add(checkoutDelay).UnixNano() > s.read {
			return false
		}
	}
	return !s.endedSince
}

// allocationSeats is a new pod.
func (s *simulation) allocationSeats(t *rapid.T) {
	s.next++
	s.at = s.at.Add(time.Millisecond)
	s.now = s.at
	name, seats := fmt.Sprintf("p%d", s.next), rapid.Int64Range(1, 4).Draw(t, "seats")
	pod, node := needing("x", name, fmt.Sprintf("solver=%d", seats)), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "node")
	left := s.total - s.reserved - s.outside - s.allocated()
	certain := s.total - s.reserved - s.used - s.allocated() // if the server counts pods twice
	if !s.includesPods || s.settled() {
		certain = left
	}
	filter, got := s.filter(s.t, s.policy, pod, node), s.allocation(s.t, s.policy, pod, node)
	switch fits := got == "fits"; {
	case strings.ReplaceAll(filter, "!", "") != strings.ReplaceAll(got, "!", ""): // Reserve does not need to know which pods hold the seats
		t.Fatalf("Filter returned %s, and Reserve %s", filter, got)
	case fits && seats > left:
		t.Fatalf("a pod got %d seats, and %d of %d were left", seats, left, s.total)
	case !fits && seats <= certain:
		t.Fatalf("%d seats were certainly free, and a pod that needs %d got %s", certain, seats, got)
	case !fits:
		s.refused++
		return
	}
	s.handed++
	s.allocations[name] = allocation{seats: seats, at: s.now}
	pod.Spec.NodeName = node
	boundAt(pod, s.at)
	s.pods = append(s.pods, pod)
}

// any returns a pod with an allocation.
func (s *simulation) any(t *rapid.T) string {
	if len(s.allocations) == 0 {
		t.Skip("no pod has an allocation")
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(s.allocations))).Draw(t, "pod")
}

func (s *simulation) endPod(t *rapid.T) {
	name := s.any(t)
	s.end(needing("x", name, "").UID)
	delete(s.allocations, name)
	s.endedSince = true
}

func (s *simulation) checkOut(t *rapid.T) {
	name := s.any(t)
	c := s.allocations[name]
	c.out = true
	s.allocations[name] = c
}

// moveOutside changes the seats used outside, which the server reports at once.
func (s *simulation) moveOutside(t *rapid.T) {
	s.outside = rapid.Int64Range(0, max(0, s.total-s.allocated())).Draw(t, "outside")
	s.ask(t)
}

// lose deletes the ledger.
func (s *simulation) lose(*rapid.T) {
	delete(s.ledgers, pool("solver"))
	for name, c := range s.allocations {
		c.lost = true
		s.allocations[name] = c
	}
}

func (s *simulation) wait(t *rapid.T) {
	s.at = s.at.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second)
}

// TestNeverOverallocated: pods never hold more seats than users outside leave, however many pods
// have checked out, in any order of events, even after the ledger is lost; and the policy never
// denies a pod a seat that is certainly free.
func TestNeverOverallocated(t *testing.T) {
	handed, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		s := &simulation{
			world: newWorld("a", "b"), t: t, includesPods: rapid.Bool().Draw(rt, "includes pods"), allocations: map[string]allocation{},
			total: rapid.Int64Range(1, 20).Draw(rt, "total"), reserved: rapid.Int64Range(0, 2).Draw(rt, "reserved"), at: policytest.Now,
		}
		s.policy = policytest.Build(t, licenses.Type(), fmt.Sprintf(`{features: [{name: solver, reservedSeats: %d, server: {signal: flexnet, usedIncludesPods: %t}}]}`, s.reserved, s.includesPods))
		s.ask(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"allocation": s.allocationSeats, "end": s.endPod, "checkOut": s.checkOut, "outside": s.moveOutside, "wait": s.wait, "read": s.ask, "lose": s.lose,
			"": func(rt *rapid.T) {
				kept := s.allocated()
				for _, c := range s.allocations {
					if c.lost {
						kept -= c.seats
					}
				}
				if has := used(s.ledgers[pool("solver")]); has != kept {
					rt.Fatalf("the ledger has %d, the pods %d", has, kept)
				}
			},
		})
		handed, refused = handed+s.handed, refused+s.refused
	})
	if handed == 0 || refused == 0 {
		t.Errorf("%d allocations succeeded, and %d were rejected: the test needs both", handed, refused)
	}
}
