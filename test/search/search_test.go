package search_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"outboard.dev/outboard/test/search"
)

var (
	began  = time.Now()
	within = flag.Duration("within", 0, "search larger scopes, and end after so long")
)

// A search allocates much and keeps little: collecting garbage less often takes a third less time.
func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(2 << 30)
	if *within > 0 {
		debug.SetMemoryLimit(7 << 30) // the states of the largest bounds
	}
	os.Exit(m.Run())
}

// bounded are searched unless -within is set. A scope with a limit is searched up to a number of moves that depends on the limit.
var bounded = []bound{
	{"two pods, one fault", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Faults: 1, Prompt: true}, 0},
	{"two pods, one crash", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Crashes: 1}, 0},
	{"three replicas, two pods", search.Scope{Replicas: 3, Pods: 2, Nodes: 1, Calls: 1}, 0},
	{"three replicas, one pod, one fault", search.Scope{Replicas: 3, Pods: 1, Nodes: 1, Calls: 1, Faults: 1}, 0},
	{"one pod, two calls, one crash", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 2, Crashes: 1}, 4_000},
	{"one seat, two nodes, one fault", search.Scope{Replicas: 1, Pods: 2, Nodes: 2, Calls: 1, Faults: 1, Request: search.Seat}, 0},
	{"one seat, two nodes", search.Scope{Replicas: 2, Pods: 2, Nodes: 2, Calls: 1, Request: search.Seat}, 0},
	{"two seats", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Request: search.OneOfTwo}, 0},
	{"one device and one seat", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Request: search.Both}, 0},
	{"one device and one seat, one deletion", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 1, Deletions: 1, Request: search.Both}, 0},
	{"one of two devices is replaced", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Devices: 2, Calls: 1, Request: search.NamedDevice, Replacements: 1}, 0},
	{"plugin, two pods, one fault", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Faults: 1, Plugin: true}, 4_000},
	{"plugin, two calls, one crash", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 2, Crashes: 1, Plugin: true}, 0},
	{"preemption, a third pod", search.Scope{Replicas: 1, Pods: 3, Nodes: 1, Calls: 1, Victims: 1, Preemptors: 1, Preemptions: 1}, 0},
	{"preemption, one crash", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Crashes: 1, Victims: 1, Preemptors: 1, Preemptions: 1}, 0},
	{"preemption, one change", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Changes: 1, Victims: 1, Preemptors: 1, Preemptions: 1}, 4_000},
	{"preemption, one seat, two nodes", search.Scope{Replicas: 1, Pods: 2, Nodes: 2, Calls: 1, Victims: 1, Preemptors: 1, Preemptions: 1, Request: search.Seat}, 0},
	{"one pod is created, one deletion, one unconfirmed pod", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 1, Creations: 1, Deletions: 1, Confirms: 1}, 0},
	{"preemption, the pod is created", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Creations: 1, Victims: 1, Preemptors: 1, Preemptions: 1}, 0},
	{"preemption, two preempt calls, two nodes, one fault", search.Scope{Replicas: 1, Pods: 3, Nodes: 2, Calls: 1, Faults: 1, Creations: 1, Victims: 2, Preemptors: 1, Preemptions: 2}, 4_000},
	{"preemption, one deletion, an unaware kube-scheduler", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Deletions: 1, Victims: 1, Preemptors: 1, Preemptions: 1, Unaware: 1}, 4_000},
	{"preemption, two replicas, the pod is created, two preempt calls, two nodes, one fault", search.Scope{Replicas: 2, Pods: 3, Nodes: 2, Calls: 1, Faults: 1, Creations: 1, Victims: 2, Preemptors: 1, Preemptions: 2}, 4_000},
	{"one bound pod is created again, two devices", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Devices: 2, Calls: 1, Creations: 1, Again: true, Deletions: 1, Victims: 1}, 0},
	{"preemption, two nodes, pods that started one after the other", search.Scope{Replicas: 1, Pods: 3, Nodes: 2, Calls: 1, Victims: 2, Preemptors: 1, Preemptions: 1, Started: true}, 0},
	{"two pods, one request arrives twice", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Duplicates: 1}, 0},
	{"one pod, one request arrives twice, one fault", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 1, Faults: 1, Duplicates: 1}, 0},
	{"one pod, two calls, two expired allocations", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 2, Expiries: 2}, 20_000},
	{"one pod asks for a seat later, one fault", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 1, Changes: 1, Faults: 1, Request: search.Later}, 0},
	{"a nominated pod asks for a seat later", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Changes: 1, Preemptors: 1, Nominated: 1, Request: search.Later}, 0},
	{"preemption, two nodes, the nominated pod is changed", search.Scope{Replicas: 1, Pods: 3, Nodes: 2, Calls: 1, Changes: 1, Victims: 2, Preemptors: 1, Preemptions: 1, Nominated: 1}, 8_000},
	{"plugin, kube-scheduler is ahead, one deletion", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Deletions: 1, Victims: 1, Request: search.Seat, Plugin: true, Ahead: true}, 0},
	{"two nominated pods, two devices", search.Scope{Replicas: 1, Pods: 3, Nodes: 1, Devices: 2, Calls: 1, Preemptors: 2, Nominated: 2}, 0},
	// A reduction that takes two states for one, from which not the same can happen, would hide a broken promise. These find none without it.
	{"not reduced: two replicas, two pods", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Unreduced: true, Asymmetric: true}, 0},
	{"not reduced: one pod, one fault", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 1, Faults: 1, Unreduced: true, Asymmetric: true}, 0},
	{"not reduced: preemption, the pod is created", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Creations: 1, Victims: 1, Preemptors: 1, Preemptions: 1, Unreduced: true}, 0},
	{"one fault, crash, creation, deletion, expired allocation and read of an unconfirmed pod together", search.Scope{
		Replicas: 2, Pods: 2, Nodes: 1, Calls: 2, Faults: 1, Crashes: 1, Creations: 1, Deletions: 1, Expiries: 1, Confirms: 1,
	}, 5_000},
}

// most is how many states of a bound make prove visits, because all are kept in memory.
const most = 6_000_000

// larger are searched by make prove, each in an equal share of the time that is left.
var larger = []bound{
	{"one device is replaced, two calls", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 2, Request: search.NamedDevice, Replacements: 1}, most},
	{"plugin, two pods, one fault", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Faults: 1, Plugin: true}, most},
	{"preemption, one change", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Changes: 1, Victims: 1, Preemptors: 1, Preemptions: 1}, most},
	{"preemption, one deletion, an unaware kube-scheduler", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Deletions: 1, Victims: 1, Preemptors: 1, Preemptions: 1, Unaware: 1}, most},
	{"preemption, two replicas, the pod is created, two preempt calls, two nodes, one fault", search.Scope{Replicas: 2, Pods: 3, Nodes: 2, Calls: 1, Faults: 1, Creations: 1, Victims: 2, Preemptors: 1, Preemptions: 2}, most},
	{"one pod is created, one fault", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 1, Faults: 1, Creations: 1}, most},
	{"one pod, one fault, one expired allocation", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 1, Faults: 1, Expiries: 1}, most},
	{"two pods, two nodes", search.Scope{Replicas: 2, Pods: 2, Nodes: 2, Calls: 1}, most},
	{"one unconfirmed pod, two calls", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 2, Confirms: 1, Deletions: 1}, most},
	{"one pod is created again", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Creations: 1, Again: true, Deletions: 1}, most},
	{"one replica, two calls, two nodes", search.Scope{Replicas: 1, Pods: 1, Nodes: 2, Calls: 2}, most},
	{"preemption, one fault", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Faults: 1, Victims: 1, Preemptors: 1, Preemptions: 1}, most},
	{"preemption, two preempt calls, two nodes", search.Scope{Replicas: 1, Pods: 3, Nodes: 2, Calls: 1, Victims: 2, Preemptors: 1, Preemptions: 2}, most},
	{"preemption, two preempt calls, the pod is created, one fault", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Faults: 1, Creations: 1, Victims: 1, Preemptors: 1, Preemptions: 2}, most},
	{"preemption, a third pod, both are created", search.Scope{Replicas: 1, Pods: 3, Nodes: 1, Calls: 1, Creations: 2, Victims: 1, Preemptors: 1, Preemptions: 1}, most},
	{"preemption, two replicas", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Victims: 1, Preemptors: 1, Preemptions: 1}, most},
	{"one pod is created, two calls, one fault", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 2, Faults: 1, Creations: 1}, most},
	{"two pods, one is created", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Creations: 1}, most},
	{"one device and one seat, two calls, one deletion", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 2, Deletions: 1, Request: search.Both}, most},
	{"one seat, two nodes, one deletion", search.Scope{Replicas: 1, Pods: 2, Nodes: 2, Calls: 1, Deletions: 1, Request: search.Seat}, most},
	{"one device is replaced, one fault", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 1, Faults: 1, Request: search.NamedDevice, Replacements: 1}, most},
	{"one pod, two calls, one fault", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 2, Faults: 1}, most},
	{"one pod is changed, one expired allocation", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 1, Changes: 1, Expiries: 1}, most},
	{"one pod is changed, two calls", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 2, Changes: 1}, most},
	{"one seat, two calls, two nodes, one fault", search.Scope{Replicas: 2, Pods: 1, Nodes: 2, Calls: 2, Faults: 1, Request: search.Seat}, most},
	{"one pod is created again, one fault", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Faults: 1, Creations: 1, Again: true, Deletions: 1}, most},
	{"one pod is created again, two replicas", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Creations: 1, Again: true, Deletions: 1}, most},
	{"plugin, one pod is created again", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Creations: 1, Again: true, Deletions: 1, Plugin: true}, most},
	{"one seat, two calls, two nodes, one request arrives twice", search.Scope{Replicas: 1, Pods: 1, Nodes: 2, Calls: 2, Duplicates: 1, Request: search.Seat}, most},
	{"two pods, two calls, one request arrives twice", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 2, Duplicates: 1}, most},
	{"one pod, two calls, two expired allocations", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 2, Expiries: 2}, most},
	{"preemption, two nodes, the nominated pod is changed", search.Scope{Replicas: 1, Pods: 3, Nodes: 2, Calls: 1, Changes: 1, Victims: 2, Preemptors: 1, Preemptions: 1, Nominated: 1}, most},
	{"plugin, kube-scheduler is ahead, one deletion, one fault", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Deletions: 1, Faults: 1, Victims: 1, Request: search.Seat, Plugin: true, Ahead: true}, most},
	{"preemption, a pod asks for a seat later", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Changes: 1, Victims: 1, Preemptors: 1, Preemptions: 1, Request: search.Later}, most},
	{"two pods ask for a seat later, two nodes", search.Scope{Replicas: 1, Pods: 2, Nodes: 2, Calls: 1, Changes: 2, Request: search.Later}, most},
	{"two pods, one expired allocation", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Expiries: 1}, most},
	{"one pod, two calls, one crash, one fault", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 2, Crashes: 1, Faults: 1}, most},
	{"one pod, one fault, one deletion", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 1, Faults: 1, Deletions: 1}, most},
	{"one pod, two calls, two nodes", search.Scope{Replicas: 2, Pods: 1, Nodes: 2, Calls: 2}, most},
	{"plugin, two calls, one deletion", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 2, Deletions: 1, Plugin: true}, most},
	{"two pods, two calls", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 2}, most},
	{"two pods, one fault, one expired allocation", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Faults: 1, Expiries: 1}, most},
	{"two pods, two faults", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Faults: 2}, most},
	{"two pods, one deletion", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Deletions: 1}, most},
	{"one pod, two calls, two nodes, one fault", search.Scope{Replicas: 2, Pods: 1, Nodes: 2, Calls: 2, Faults: 1}, most},
	{"preemption, two replicas, a third pod", search.Scope{Replicas: 2, Pods: 3, Nodes: 1, Calls: 1, Victims: 1, Preemptors: 1, Preemptions: 1}, most},
	{"preemption, two preemptors, two nodes", search.Scope{Replicas: 1, Pods: 4, Nodes: 2, Calls: 1, Victims: 2, Preemptors: 2, Preemptions: 3}, most},
	{"three replicas, two pods, two nodes", search.Scope{Replicas: 3, Pods: 2, Nodes: 2, Calls: 1}, most},
	{"three replicas, two pods, two nodes, one fault", search.Scope{Replicas: 3, Pods: 2, Nodes: 2, Calls: 1, Faults: 1}, most},
	{"one fault, crash, creation, deletion, expired allocation and read of an unconfirmed pod together", search.Scope{
		Replicas: 3, Pods: 2, Nodes: 2, Calls: 2, Faults: 1, Crashes: 1, Creations: 1, Deletions: 1, Expiries: 1, Confirms: 1,
	}, most},
}

// kinds are what there may be one more of than in the smallest scope.
var kinds = []struct {
	name string
	add  func(*search.Scope)
}{
	{"bind call", func(s *search.Scope) { s.Calls++ }},
	{"fault", func(s *search.Scope) { s.Faults++ }},
	{"request that arrives twice", func(s *search.Scope) { s.Duplicates++ }},
	{"crash", func(s *search.Scope) { s.Crashes++ }},
	{"change", func(s *search.Scope) { s.Changes++ }},
	{"deletion", func(s *search.Scope) { s.Deletions++ }},
	{"pod that ends", func(s *search.Scope) { s.Endings++ }},
	{"expired allocation", func(s *search.Scope) { s.Expiries++ }},
	{"unconfirmed pod", func(s *search.Scope) { s.Confirms++ }},
	{"replaced device", func(s *search.Scope) { s.Request, s.Replacements = search.NamedDevice, s.Replacements+1 }},
	{"pod that is created", func(s *search.Scope) { s.Creations = 1 }},
	{"plugin", func(s *search.Scope) { s.Plugin = true }},
	{"second replica", func(s *search.Scope) { s.Replicas = 2 }},
	{"second pod", func(s *search.Scope) { s.Pods = 2 }},
	{"second node", func(s *search.Scope) { s.Nodes = 2 }},
}

// combined returns a bound for each number of kinds together, of which one may be taken twice, after those before first.
func combined(number, first int, b bound) (all []bound) {
	if number == 0 {
		return []bound{b}
	}
	for i := first; i < len(kinds); i++ {
		next := b
		next.name = strings.TrimPrefix(b.name+", "+kinds[i].name, ", ")
		kinds[i].add(&next.scope)
		all = append(all, combined(number-1, i, next)...)
	}
	return all
}

var one = search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 1}

// TestEveryCombination searches what may happen beside one pod that is bound once: all combinations of two kinds of events, and with -within
// those of three.
func TestEveryCombination(t *testing.T) {
	number, most := 2, 2_000
	if *within > 0 {
		number, most = 3, 5_000
	}
	bounds := combined(number, 0, bound{scope: one, states: most})
	done, complete, states := 0, 0, 0
	for _, b := range bounds {
		if *within > 0 && time.Since(began) > *within {
			break
		}
		r, err := search.Explore(t.Context(), b.scope, b.states)
		if err != nil || r.Broken != nil {
			t.Fatal(b.name, err, r)
		}
		if done, states = done+1, states+r.States; r.Finished {
			complete++
		}
	}
	t.Logf("%d of %d combinations: %d complete, %d states", done, len(bounds), complete, states)
}

type bound struct {
	name   string
	scope  search.Scope
	states int // the limit; 0: none
}

// TestEveryInterleaving searches all interleavings within the bounds for a broken promise.
func TestEveryInterleaving(t *testing.T) {
	bounds, end := bounded, began.Add(*within)
	if *within > 0 {
		bounds = larger
	}
	for i, b := range bounds {
		t.Run(b.name, func(t *testing.T) {
			ctx := t.Context()
			if *within > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(len(bounds)-i))
				defer cancel()
			}
			r, err := search.Explore(ctx, b.scope, b.states)
			if err != nil || r.Broken != nil {
				t.Fatal(err, r)
			}
			switch {
			case r.Finished:
				t.Logf("complete: %v", r)
			case b.states == 0:
				t.Errorf("not complete: %v", r)
			default:
				t.Logf("all histories of up to %d moves: %v", r.Depth, r)
			}
		})
	}
}

// mutations are the defects that a test seeds, each with a small scope in which it can be seen, and what the search says of each.
var mutations = []struct {
	mutation search.Mutation
	scope    search.Scope
	broken   string
}{
	{search.BindingWithoutVersion, smallest, "pod p is bound to node-0, and the ledger has no allocation of it"},
	{search.AnnotationsAfterBinding, smallest, "pod p is bound without the annotation of its allocation"},
	{search.ReleaseWithoutTouch, smallest, "pod p is bound to node-0, and the ledger has no allocation of it"},
	{search.NotForgotten, smallest, "replica 0: the view has pod p on node-0, and it should be on \"\""},
	{search.DeletionNotShown, search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 1, Deletions: 1}, "in the end the ledger of node-0 has an allocation of pod p, which is not bound there"},
	{search.PoolWithoutVersion, search.Scope{Replicas: 2, Pods: 2, Nodes: 2, Calls: 1, Request: search.Seat}, "pod p is bound to node-0, and the ledger has no allocation of it"},
	{search.UnusableAllocationUsed, search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 2, Request: search.NamedDevice, Replacements: 1}, `pod p is bound with device "a", and the node of the bind call has "b"`},
	{search.ConfirmedFromCache, search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 1, Confirms: 1}, "replica 0: the view does not have pod p on node-0"},
	{search.EvictedFromCache, search.Scope{Replicas: 1, Pods: 3, Nodes: 2, Calls: 1, Victims: 2, Preemptors: 1, Preemptions: 2}, "pod r is nominated to node-0 and fits there, and the preempt call evicts pods on other nodes"},
	{search.FinishedWithoutBinding, search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 1, Faults: 1, Plugin: true}, `replica 0: the view has pod p on node-0, and it should be on ""`},
}

var smallest = search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Faults: 1}

// The search finds each seeded defect, with a history of a few lines.
func TestSeededDefectsAreFound(t *testing.T) {
	for _, m := range mutations {
		t.Run(string(m.mutation), func(t *testing.T) {
			m.scope.Mutation = m.mutation
			r, err := search.Explore(t.Context(), m.scope, 0)
			if err != nil {
				t.Fatal(err)
			}
			if anonymous(r.Broken) != m.broken {
				t.Fatalf("got %v, want %q", r, m.broken)
			}
			if len(r.History) > 12 {
				t.Errorf("the history has %d moves", len(r.History))
			}
			t.Log(r)
		})
	}
}

// anonymous is the error with the names of the first pod, replica and node: of two histories that are the same except for names, the search finds
// one.
func anonymous(err error) string {
	return strings.NewReplacer("pod q", "pod p", "replica 1", "replica 0", "node-1", "node-0").Replace(fmt.Sprint(err))
}
