package policytest

import (
	"context"
	"testing"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// allocatesNothing calls Cycles that are prepared after the Facts of the nodes are computed: a Fact
// that is created for each pod would be computed again. It measures all cases together, because each
// measurement stops the world. Only if there are allocations does it measure the calls one by one.
func (s *suite) allocatesNothing() {
	var worlds []*world
	for _, c := range s.cases {
		w, prep := s.fresh(c, s.policy)
		prep.evaluate(w.nodes, forward(len(w.nodes))) // from here on the Facts are computed
		worlds = append(worlds, w)
	}
	callsOf := func(i int) []call {
		return prepare(context.Background(), s.policy, s.cases[i].pod.DeepCopy(), worlds[i].view).calls(worlds[i].nodes)
	}
	all := func() (calls []call) {
		for i := range s.cases {
			calls = append(calls, callsOf(i)...)
		}
		return calls
	}
	if allocated(all) == 0 {
		return
	}
	allowed := float64(s.options.Allocates)
	for i, c := range s.cases {
		for j, made := range callsOf(i) {
			if n := fewest(allowed, func() []call { return callsOf(i)[j : j+1] }); n > allowed {
				s.fail("allocations", c.name+", "+nodeName(made.node), "%s allocates %.0f times: compute it in Prepare, or in a snapshot.Fact that is created once, with the policy (go test -bench . -memprofile shows where)", made.what, n)
			}
		}
	}
}

type call struct {
	what string
	node *snapshot.Node
	make func()
}

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

// fewest returns the fewest allocations of up to 20 measurements. What other goroutines and the
// garbage collector allocate is in some of the measurements, but not in all.
func fewest(allowed float64, calls func() []call) float64 {
	n := allocated(calls)
	for i := 1; i < 20 && n > allowed; i++ {
		n = min(n, allocated(calls))
	}
	return n
}

// allocated returns the allocations of calls of new Cycles. AllocsPerRun calls the function once
// before it measures one call, and each call has Cycles of its own.
func allocated(calls func() []call) float64 {
	runs := [][]call{calls(), calls()}
	return testing.AllocsPerRun(1, func() {
		for _, call := range runs[0] {
			call.make()
		}
		runs = runs[1:]
	})
}
