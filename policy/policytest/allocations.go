package policytest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// allocations measures all cases together, because each measurement stops the world. Only if there
// are any does it measure the cases one by one.
func (s *suite) allocations() {
	type question struct {
		c    *testCase
		what string
		ask  func(*snapshot.Node)
		node *snapshot.Node
	}
	var questions []question
	for _, c := range s.cases {
		w, prep := s.fresh(c, s.policy)
		prep.evaluate(w.nodes, forward(len(w.nodes))) // from here on the Facts are computed
		filter, filters := prep.cycle.(policy.Filter)
		score, scores := prep.cycle.(policy.Score)
		for _, n := range w.nodes {
			if filters {
				questions = append(questions, question{c, "Filter", func(n *snapshot.Node) { filter.Filter(n) }, n})
			}
			if scores {
				questions = append(questions, question{c, "Score", func(n *snapshot.Node) { score.Score(n) }, n})
			}
		}
	}
	const runs = 10
	allowed := float64(s.options.Allocates.AtMost)
	all := testing.AllocsPerRun(runs, func() {
		for _, q := range questions {
			q.ask(q.node)
		}
	})
	if all == 0 {
		s.preparedAgain()
		return
	}
	failed := false
	for _, q := range questions {
		once := func() { q.ask(q.node) }
		if n := fewest(allowed, func() float64 { return testing.AllocsPerRun(runs, once) }); n > allowed {
			where := ""
			if !failed {
				where = allocated(once) // collects the garbage four times, so only the first failure has it
			}
			failed = true
			s.fail("allocations", q.c.name+", "+nodeName(q.node), "%s allocates %.0f times: compute it in Prepare or in a snapshot.Fact%s", q.what, n, where)
		}
	}
}

// preparedAgain calls Cycles that are prepared after the Facts of the nodes are computed. A Fact that is created for each pod
// would be computed for each pod.
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
	// AllocsPerRun calls the function once before it measures one call, and each call has Cycles of its own.
	measure := func(cases []known) float64 {
		var calls [2][]func()
		for i := range calls {
			for _, k := range cases {
				prep := prepare(context.Background(), s.policy, k.c.pod.DeepCopy(), k.w.view)
				calls[i] = append(calls[i], prep.calls(k.w.nodes)...)
			}
		}
		i := 0
		return testing.AllocsPerRun(1, func() {
			for _, call := range calls[i] {
				call()
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

// fewest returns the fewest allocations of up to 20 measurements. What other goroutines and the garbage
// collector allocate is in some of the measurements, but not in all.
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

// allocated returns where f allocates: up to three stacks, each with the number of its allocations. Of several
// allocations of less than 16 bytes, the profile has only some.
func allocated(f func()) string {
	const calls, stacks = 100, 3
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	before := allocationProfile()
	runtime.MemProfileRate = 1
	for range calls {
		f()
	}
	runtime.MemProfileRate = 0
	var all []string
	for stack, objects := range allocationProfile() {
		if n := objects - before[stack]; n >= calls/10 {
			all = append(all, fmt.Sprintf("\n\t%d times in %d calls at:%s", n, calls, stackText(stack[:])))
		}
	}
	slices.Sort(all)
	return strings.Join(all[:min(len(all), stacks)], "")
}

// allocationProfile returns how many objects each stack has allocated since the process started.
func allocationProfile() map[[32]uintptr]int64 {
	for range 2 { // the profile is up to two collections behind
		runtime.GC()
	}
	records := make([]runtime.MemProfileRecord, 1000)
	n, complete := runtime.MemProfile(records, true)
	for !complete {
		records = make([]runtime.MemProfileRecord, 2*n)
		n, complete = runtime.MemProfile(records, true)
	}
	objects := make(map[[32]uintptr]int64, n)
	for _, r := range records[:n] {
		objects[r.Stack0] += r.AllocObjects
	}
	return objects
}
