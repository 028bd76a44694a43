package policytest

import (
	"context"
	"testing"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// allocations measures all cases together, because each measurement stops the world. Only if there
// are any does it measure the cases one by one.
func (s *suite) allocations() {
	type calls struct {
		c   *testCase
		all []call
	}
	var cases []calls
	for _, c := range s.cases {
		w, prep := s.fresh(c, s.policy)
		prep.evaluate(w.nodes, forward(len(w.nodes))) // from here on the Facts are computed
		cases = append(cases, calls{c, prep.calls(w.nodes)})
	}
	const runs = 10
	allowed := float64(s.options.Allocates.AtMost)
	all := testing.AllocsPerRun(runs, func() {
		for _, c := range cases {
			for _, call := range c.all {
				call.make()
			}
		}
	})
	if all == 0 {
		s.preparedAgain()
		return
	}
	for _, c := range cases {
		for _, call := range c.all {
			if n := fewest(allowed, func() float64 { return testing.AllocsPerRun(runs, call.make) }); n > allowed {
				s.fail("allocations", c.c.name+", "+nodeName(call.node), "%s allocates %.0f times: compute it in Prepare or in a snapshot.Fact (go test -bench . -memprofile shows where)", call.what, n)
			}
		}
	}
}

// call is a call of Filter or Score for a node.
type call struct {
	what string
	node *snapshot.Node
	make func()
}

// calls returns a call of Filter and one of Score for each node.
func (r prepared) calls(nodes []*snapshot.Node) []call {
	var all []call
	filter, filters := r.cycle.(policy.Filter)
	score, scores := r.cycle.(policy.Score)
	for _, n := range nodes {
		if filters {
			all = append(all, call{"Filter", n, func() { filter.Filter(n) }})
		}
		if scores {
			all = append(all, call{"Score", n, func() { score.Score(n) }})
		}
	}
	return all
}

// preparedAgain calls Cycles that are prepared after the Facts of the nodes are computed. A Fact
// that is created for each pod would be computed for each pod.
func (s *suite) preparedAgain() {
	type known struct {
		c *testCase
		w *world
	}
	var all []known
	for _, c := range s.cases {
		w, prep := s.fresh(c, s.policy)
		prep.evaluate(w.nodes, forward(len(w.nodes)))
		all = append(all, known{c, w})
	}
	// AllocsPerRun calls the function once before it measures one call, and each call has Cycles of
	// its own.
	measure := func(cases []known) float64 {
		var calls [2][]call
		for i := range calls {
			for _, k := range cases {
				prep := prepare(context.Background(), s.policy, k.c.pod.DeepCopy(), k.w.view)
				calls[i] = append(calls[i], prep.calls(k.w.nodes)...)
			}
		}
		i := 0
		return testing.AllocsPerRun(1, func() {
			for _, call := range calls[i] {
				call.make()
			}
			i++
		})
	}
	if s.options.Allocates.AtMost > 0 || measure(all) == 0 {
		return
	}
	for i := range all {
		if allocs := fewest(0, func() float64 { return measure(all[i : i+1]) }); allocs > 0 {
			s.fail("allocations", all[i].c.name, "a Cycle that is prepared again for the same nodes allocates %.0f times: create a snapshot.Fact once, with the policy", allocs)
		}
	}
}

// fewest returns the fewest allocations of up to 20 measurements. What other goroutines and the
// garbage collector allocate is in some of the measurements, but not in all.
func fewest(allowed float64, measure func() float64) float64 {
	n := measure()
	for range 19 {
		if n <= allowed {
			break
		}
		n = min(n, measure())
	}
	return n
}
