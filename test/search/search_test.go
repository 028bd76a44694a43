package search_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"outboard.dev/outboard/test/finished"
	"outboard.dev/outboard/test/search"
)

var (
	began        = time.Now()
	within       = flag.Duration("within", 0, "search larger scopes, and end after so long")
	finishedFile = flag.String("finished", "", "file with the scopes that an earlier run of the same program has finished, which are skipped; beside it is the one that it has begun")
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

// bounded are searched by make test. A scope with a limit is searched up to a number of moves that depends on the limit.
var bounded = []bound{
	{"two pods, one fault", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Faults: 1, Prompt: true}, 0},
	{"two pods, one crash", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Crashes: 1}, 0},
	{"three replicas, two pods", search.Scope{Replicas: 3, Pods: 2, Nodes: 1, Calls: 1}, 0},
	{"three replicas, one pod, one fault", search.Scope{Replicas: 3, Pods: 1, Nodes: 1, Calls: 1, Faults: 1}, 0},
	{"one pod, two calls, one crash", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 2, Crashes: 1}, 0},
	{"one replica, two calls, one fault", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 2, Faults: 1}, 0},
	{"one pod, one deletion", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 1, Deletions: 1}, 0},
	{"one replica, two calls, two nodes", search.Scope{Replicas: 1, Pods: 1, Nodes: 2, Calls: 2}, 5_000},
	{"one seat, two calls, two nodes", search.Scope{Replicas: 1, Pods: 1, Nodes: 2, Calls: 2, Request: search.Seat}, 0},
	{"one seat, two nodes, one fault", search.Scope{Replicas: 1, Pods: 2, Nodes: 2, Calls: 1, Faults: 1, Request: search.Seat}, 0},
	{"one seat, two nodes", search.Scope{Replicas: 2, Pods: 2, Nodes: 2, Calls: 1, Request: search.Seat}, 0},
	{"two seats", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Request: search.OneOfTwo}, 0},
	{"one device and one seat", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Request: search.Both}, 0},
	{"one device and one seat, one deletion", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 1, Deletions: 1, Request: search.Both}, 0},
	{"one device is replaced, two calls", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 2, Request: search.NamedDevice, Replacements: 1}, 0},
	{"one of two devices is replaced", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Devices: 2, Calls: 1, Request: search.NamedDevice, Replacements: 1}, 0},
	{"plugin, two pods, one fault", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Faults: 1, Plugin: true}, 0},
	{"plugin, two calls, one crash", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 2, Crashes: 1, Plugin: true}, 0},
	{"preemption, a third pod", search.Scope{Replicas: 1, Pods: 3, Nodes: 1, Calls: 1, Victims: 1, Preemptors: 1, Preemptions: 1}, 0},
	{"preemption, one crash", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Crashes: 1, Victims: 1, Preemptors: 1, Preemptions: 1}, 0},
	{"preemption, one change", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Changes: 1, Victims: 1, Preemptors: 1, Preemptions: 1}, 0},
	{"preemption, one seat, two nodes", search.Scope{Replicas: 1, Pods: 2, Nodes: 2, Calls: 1, Victims: 1, Preemptors: 1, Preemptions: 1, Request: search.Seat}, 0},
	{"one pod is created, one deletion, one unconfirmed pod", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 1, Creations: 1, Deletions: 1, Confirms: 1}, 0},
	{"preemption, the pod is created", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Creations: 1, Victims: 1, Preemptors: 1, Preemptions: 1}, 0},
	{"preemption, two preempt calls, two nodes, one fault", search.Scope{Replicas: 1, Pods: 3, Nodes: 2, Calls: 1, Faults: 1, Creations: 1, Victims: 2, Preemptors: 1, Preemptions: 2}, 8_000},
	{"preemption, two preemptors, two nodes", search.Scope{Replicas: 1, Pods: 4, Nodes: 2, Calls: 1, Victims: 2, Preemptors: 2, Preemptions: 3}, 3_000},
	{"preemption, one deletion, an unaware kube-scheduler", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Deletions: 1, Victims: 1, Preemptors: 1, Preemptions: 1, Unaware: 1}, 0},
	{"preemption, two replicas, the pod is created, two preempt calls, two nodes, one fault", search.Scope{Replicas: 2, Pods: 3, Nodes: 2, Calls: 1, Faults: 1, Creations: 1, Victims: 2, Preemptors: 1, Preemptions: 2}, 4_000},
	{"one bound pod is created again, two devices", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Devices: 2, Calls: 1, Creations: 1, Again: true, Deletions: 1, Victims: 1}, 0},
	{"preemption, two nodes, pods that started one after the other", search.Scope{Replicas: 1, Pods: 3, Nodes: 2, Calls: 1, Victims: 2, Preemptors: 1, Preemptions: 1, Started: true}, 0},
	{"two pods, one request arrives twice", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Duplicates: 1}, 0},
	{"one pod, one request arrives twice, one fault", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 1, Faults: 1, Duplicates: 1}, 0},
	{"one pod, two calls, two expired claims", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 2, Expiries: 2}, 20_000},
	{"one pod asks for a seat later, one fault", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 1, Changes: 1, Faults: 1, Request: search.Later}, 0},
	{"a nominated pod asks for a seat later", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Changes: 1, Preemptors: 1, Nominated: 1, Request: search.Later}, 0},
	{"preemption, two nodes, the nominated pod is changed", search.Scope{Replicas: 1, Pods: 3, Nodes: 2, Calls: 1, Changes: 1, Victims: 2, Preemptors: 1, Preemptions: 1, Nominated: 1}, 8_000},
	{"plugin, kube-scheduler is ahead, one deletion", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Deletions: 1, Victims: 1, Request: search.Seat, Plugin: true, Ahead: true}, 0},
	{"two nominated pods, two devices", search.Scope{Replicas: 1, Pods: 3, Nodes: 1, Devices: 2, Calls: 1, Preemptors: 2, Nominated: 2}, 0},
	{"one fault, crash, creation, deletion, expired claim and read of an unconfirmed pod together", search.Scope{
		Replicas: 2, Pods: 2, Nodes: 1, Calls: 2, Faults: 1, Crashes: 1, Creations: 1, Deletions: 1, Expiries: 1, Confirms: 1,
	}, 5_000},
}

// most is how many states of a bound make prove visits, because all are kept in memory.
const most = 6_000_000

// larger are searched by make prove, each in an equal share of the time that is left.
var larger = []bound{
	{"one pod is created, one fault", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 1, Faults: 1, Creations: 1}, most},
	{"one pod, one fault, one expired claim", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 1, Faults: 1, Expiries: 1}, most},
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
	{"one pod is changed, one expired claim", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 1, Changes: 1, Expiries: 1}, most},
	{"one pod is changed, two calls", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 2, Changes: 1}, most},
	{"one seat, two calls, two nodes, one fault", search.Scope{Replicas: 2, Pods: 1, Nodes: 2, Calls: 2, Faults: 1, Request: search.Seat}, most},
	{"one pod is created again, one fault", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Faults: 1, Creations: 1, Again: true, Deletions: 1}, most},
	{"one pod is created again, two replicas", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Creations: 1, Again: true, Deletions: 1}, most},
	{"plugin, one pod is created again", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Creations: 1, Again: true, Deletions: 1, Plugin: true}, most},
	{"one seat, two calls, two nodes, one request arrives twice", search.Scope{Replicas: 1, Pods: 1, Nodes: 2, Calls: 2, Duplicates: 1, Request: search.Seat}, most},
	{"two pods, two calls, one request arrives twice", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 2, Duplicates: 1}, most},
	{"one pod, two calls, two expired claims", search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 2, Expiries: 2}, most},
	{"preemption, two nodes, the nominated pod is changed", search.Scope{Replicas: 1, Pods: 3, Nodes: 2, Calls: 1, Changes: 1, Victims: 2, Preemptors: 1, Preemptions: 1, Nominated: 1}, most},
	{"plugin, kube-scheduler is ahead, one deletion, one fault", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Deletions: 1, Faults: 1, Victims: 1, Request: search.Seat, Plugin: true, Ahead: true}, most},
	{"preemption, a pod asks for a seat later", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Changes: 1, Victims: 1, Preemptors: 1, Preemptions: 1, Request: search.Later}, most},
	{"two pods ask for a seat later, two nodes", search.Scope{Replicas: 1, Pods: 2, Nodes: 2, Calls: 1, Changes: 2, Request: search.Later}, most},
	{"two pods, one expired claim", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Expiries: 1}, most},
	{"one pod, two calls, one crash, one fault", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 2, Crashes: 1, Faults: 1}, most},
	{"one pod, one fault, one deletion", search.Scope{Replicas: 2, Pods: 1, Nodes: 1, Calls: 1, Faults: 1, Deletions: 1}, most},
	{"one pod, two calls, two nodes", search.Scope{Replicas: 2, Pods: 1, Nodes: 2, Calls: 2}, most},
	{"plugin, two calls, one deletion", search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 2, Deletions: 1, Plugin: true}, most},
	{"two pods, two calls", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 2}, most},
	{"two pods, one fault, one expired claim", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Faults: 1, Expiries: 1}, most},
	{"two pods, two faults", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Faults: 2}, most},
	{"two pods, one deletion", search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Deletions: 1}, most},
	{"one pod, two calls, two nodes, one fault", search.Scope{Replicas: 2, Pods: 1, Nodes: 2, Calls: 2, Faults: 1}, most},
	{"preemption, two replicas, a third pod", search.Scope{Replicas: 2, Pods: 3, Nodes: 1, Calls: 1, Victims: 1, Preemptors: 1, Preemptions: 1}, most},
	{"preemption, two preemptors, two nodes", search.Scope{Replicas: 1, Pods: 4, Nodes: 2, Calls: 1, Victims: 2, Preemptors: 2, Preemptions: 3}, most},
	{"three replicas, two pods, two nodes", search.Scope{Replicas: 3, Pods: 2, Nodes: 2, Calls: 1}, most},
	{"three replicas, two pods, two nodes, one fault", search.Scope{Replicas: 3, Pods: 2, Nodes: 2, Calls: 1, Faults: 1}, most},
	{"one fault, crash, creation, deletion, expired claim and read of an unconfirmed pod together", search.Scope{
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
	{"expired claim", func(s *search.Scope) { s.Expiries++ }},
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
	number, most := 2, 4_000
	if *within > 0 {
		number, most = 3, 5_000
	}
	finished, err := finished.Open(*finishedFile)
	if err != nil {
		t.Fatal(err)
	}
	bounds := combined(number, 0, bound{scope: one, states: most})
	done, complete, states := 0, 0, 0
	for _, b := range bounds {
		if *within > 0 && time.Since(began) > *within {
			break
		}
		r, err := combination(t.Context(), finished, b)
		if err != nil {
			t.Fatalf("%s: %v", b.name, err)
		}
		if done, states = done+1, states+r.States; r.Finished {
			complete++
		}
	}
	t.Logf("%d of %d combinations: %d complete, %d states", done, len(bounds), complete, states)
	text := fmt.Sprintf("Of these %d combinations, %d are complete", len(bounds), complete)
	if *within > 0 {
		text = fmt.Sprintf("(%d of %d are complete)", complete, len(bounds))
	}
	if done == len(bounds) && compares() && !strings.Contains(strings.Join(strings.Fields(readme(t)), " "), text) {
		t.Errorf("README.md does not say %q", text)
	}
}

// combination searches the bound, or returns what an earlier run has found there. A broken promise is an error.
func combination(ctx context.Context, finished *finished.List, b bound) (r search.Result, err error) {
	id := fmt.Sprintf("%+v", b)
	if earlier, ok := finished.Result(id); ok {
		_, err := fmt.Sscan(earlier, &r.States, &r.Finished)
		return r, err
	}
	if r, err = search.Explore(ctx, b.scope, search.Options{States: b.states}); err != nil {
		return r, err
	}
	if r.Broken != nil {
		return r, errors.New(r.String())
	}
	return r, finished.Add(id, fmt.Sprint(r.States, " ", r.Finished))
}

type bound struct {
	name   string
	scope  search.Scope
	states int // the limit; 0: none
}

// TestEveryInterleaving searches all interleavings within the bounds for a broken promise.
func TestEveryInterleaving(t *testing.T) {
	bounds, end, results := bounded, began.Add(*within), map[string]search.Result{}
	if *within > 0 {
		bounds = larger
	}
	done, err := finished.Open(*finishedFile)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range bounds {
		t.Run(b.name, func(t *testing.T) {
			id := fmt.Sprintf("%+v", b)
			inTime := fmt.Sprintf("%s within %v", id, *within) // with more time, it is searched again
			for _, part := range []string{id, inTime} {
				if result, ok := done.Result(part); ok {
					t.Skip("an earlier run has finished this scope: ", result)
				}
			}
			shown := time.Now()
			o := search.Options{States: b.states, Progress: func(depth, states, frontier int) {
				if *within > 0 && time.Since(shown) > 10*time.Second {
					shown = time.Now()
					t.Logf("%d states within %d moves, %d of them new", states, depth, frontier)
				}
			}}
			if *finishedFile != "" {
				o.Checkpoint = &search.Checkpoint{File: *finishedFile + ".search", ID: done.Program() + id, Interval: time.Minute}
				o.Continued = func(depth, states int) { t.Logf("continues with %d states within %d moves", states, depth) }
			}
			ctx := t.Context()
			if *within > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(len(bounds)-i))
				defer cancel()
			}
			r, err := search.Explore(ctx, b.scope, o)
			if err != nil {
				t.Fatal(err)
			}
			if r.Broken != nil {
				t.Fatal(r)
			}
			results[b.name] = r
			switch {
			case r.Finished:
				t.Logf("complete: %v", r)
			case b.states == 0:
				t.Errorf("not complete: %v", r)
			default:
				t.Logf("all histories of up to %d moves: %v", r.Depth, r)
			}
			if ctx.Err() != nil {
				id = inTime
			}
			if err := done.Add(id, r.String()); err != nil {
				t.Fatal(err)
			}
		})
	}
	compareTable(t, bounds, results)
}

// mutations are the defects that a test seeds, each with a small scope in which it can be seen, and what the search says of each.
var mutations = []struct {
	mutation search.Mutation
	scope    search.Scope
	broken   string
}{
	{search.BindingWithoutVersion, smallest, "pod p is bound to node-0, and the ledger has no claim of it"},
	{search.AnnotationsAfterBinding, smallest, "pod p is bound without the annotation of its claim"},
	{search.ReleaseWithoutTouch, smallest, "pod p is bound to node-0, and the ledger has no claim of it"},
	{search.NotForgotten, smallest, "replica 0: the view has pod p on node-0, and it should be on \"\""},
	{search.DeletionNotShown, search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 1, Deletions: 1}, "in the end the ledger of node-0 has a claim of pod p, which is not bound there"},
	{search.PoolWithoutVersion, search.Scope{Replicas: 2, Pods: 2, Nodes: 2, Calls: 1, Request: search.Seat}, "pod p is bound to node-0, and the ledger has no claim of it"},
	{search.UnusableClaimUsed, search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 2, Request: search.NamedDevice, Replacements: 1}, `pod p is bound with device "a", and the node of the bind call has "b"`},
	{search.ConfirmedFromCache, search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 1, Confirms: 1}, "replica 0: the view does not have pod p on node-0"},
	{search.EvictedFromCache, search.Scope{Replicas: 1, Pods: 3, Nodes: 2, Calls: 1, Victims: 2, Preemptors: 1, Preemptions: 2}, "pod r is nominated to node-0 and fits there, and the preempt call evicts pods on other nodes"},
	{search.NominationKept, search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Faults: 1, Victims: 1, Preemptors: 1, Preemptions: 1}, "replica 0: the view has pod p nominated to [node-0], and it should be to one of [] at most"},
	{search.UnseenNotNominated, search.Scope{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Creations: 1, Victims: 1, Preemptors: 1, Preemptions: 1}, "replica 0: the view has pod p nominated to [], and kube-scheduler has chosen node-0"},
	{search.FinishedWithoutBinding, search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 1, Faults: 1, Plugin: true}, `replica 0: the view has pod p on node-0, and it should be on ""`},
}

var smallest = search.Scope{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1, Faults: 1}

// The search finds each seeded defect, with a history of a few lines.
func TestSeededDefectsAreFound(t *testing.T) {
	for _, m := range mutations {
		t.Run(string(m.mutation), func(t *testing.T) {
			m.scope.Mutation = m.mutation
			r, err := search.Explore(t.Context(), m.scope, search.Options{})
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

// The reductions change no verdict: without them, the search visits more states, and finds the same.
func TestReductionsChangeNoVerdict(t *testing.T) {
	scopes := []search.Scope{
		{Replicas: 1, Pods: 2, Nodes: 1, Calls: 1, Creations: 1, Victims: 1, Preemptors: 1, Preemptions: 1},
		{Replicas: 2, Pods: 1, Nodes: 1, Calls: 1, Expiries: 1},
		{Replicas: 2, Pods: 1, Nodes: 1, Calls: 1, Faults: 1},
		{Replicas: 2, Pods: 2, Nodes: 1, Calls: 1},
	}
	for _, m := range mutations {
		m.scope.Mutation = m.mutation
		scopes = append(scopes, m.scope)
	}
	for _, scope := range scopes {
		reduced := verdict(t, scope)
		for _, without := range []struct{ unreduced, asymmetric bool }{{true, true}, {true, false}, {false, true}} {
			scope.Unreduced, scope.Asymmetric = without.unreduced, without.asymmetric
			r := verdict(t, scope)
			if anonymous(r.Broken) != anonymous(reduced.Broken) || len(r.History) != len(reduced.History) {
				t.Errorf("%+v: got %v, with reductions %v", scope, r, reduced)
			}
			if scope.Mutation != search.None {
				break // one is enough
			}
			if r.States < reduced.States {
				t.Errorf("%+v: %d states, with reductions %d", without, r.States, reduced.States)
			}
			t.Logf("%+v: %d states, with reductions %d", without, r.States, reduced.States)
		}
	}
}

// Each search visits the same states in the same order, so that a history that breaks a promise can be found again.
func TestSearchesAreDeterministic(t *testing.T) {
	broken := smallest
	broken.Mutation = search.BindingWithoutVersion
	for _, scope := range []search.Scope{{Replicas: 2, Pods: 2, Nodes: 2, Calls: 1, Request: search.Seat}, broken} {
		first := verdict(t, scope)
		search.ForgetViews()
		if again := verdict(t, scope); !reflect.DeepEqual(again, first) {
			t.Errorf("%+v: got %v, and then %v", scope, first, again)
		}
	}
}

// The number of states does not depend on the order in which a search visits them: the same can happen from two states that it treats as one.
func TestStatesAreTheSameInAnyOrder(t *testing.T) {
	for _, scope := range []search.Scope{
		{Replicas: 2, Pods: 2, Nodes: 2, Calls: 1, Request: search.Seat},
		{Replicas: 1, Pods: 1, Nodes: 1, Calls: 2, Request: search.NamedDevice, Replacements: 1},
	} {
		search.ForgetViews()
		n, err := search.Reachable(scope)
		if err != nil {
			t.Fatal(err)
		}
		search.ForgetViews()
		if r := verdict(t, scope); r.States != n {
			t.Errorf("%+v: %d states in another order than %v", scope, n, r)
		}
	}
}

// What a search visits does not depend on earlier searches, whose memory it uses.
func TestSearchesAreIndependent(t *testing.T) {
	small := search.Scope{Replicas: 1, Pods: 1, Nodes: 1, Calls: 1, Deletions: 1}
	alone := verdict(t, small)
	verdict(t, search.Scope{Replicas: 3, Pods: 1, Nodes: 1, Calls: 1})
	if again := verdict(t, small); again.States != alone.States {
		t.Errorf("%d states, and %d after a search with more replicas", alone.States, again.States)
	}
}

// A search that was ended in the middle continues in another process, and visits the same states as one that was not.
func TestSearchContinues(t *testing.T) {
	scope := search.Scope{Replicas: 1, Pods: 3, Nodes: 1, Calls: 1, Victims: 1, Preemptors: 1, Preemptions: 1}
	file, earlier := filepath.Join(t.TempDir(), "search"), []byte(nil)
	whole, err := search.Explore(t.Context(), scope, search.Options{Checkpoint: &search.Checkpoint{File: file, ID: "this"}, Progress: func(_, states, _ int) {
		if states > 5_000 && earlier == nil {
			earlier, _ = os.ReadFile(file)
		}
	}})
	if err != nil || len(earlier) == 0 {
		t.Fatalf("%v; the file had %d bytes", err, len(earlier))
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file stays after the end of the search: %v", err)
	}
	for id, limit := range map[string]int{"another": 1, "this": 0} {
		if err := os.WriteFile(file, earlier, 0o600); err != nil {
			t.Fatal(err)
		}
		search.ForgetViews()
		from := 0
		r, err := search.Explore(t.Context(), scope, search.Options{
			States: limit, Checkpoint: &search.Checkpoint{File: file, ID: id, Interval: time.Hour}, Continued: func(_, states int) { from = states },
		})
		switch {
		case err != nil:
			t.Error(err)
		case id == "another":
			if from != 0 || r.States > 100 {
				t.Errorf("another search continues from %d states: %v", from, r)
			}
		case from < 1_000 || from >= whole.States || !reflect.DeepEqual(r, whole):
			t.Errorf("the search continues from %d states, and finds %v, want %v", from, r, whole)
		}
	}
}

// ending is a context that ends when its error was read a number of times.
type ending struct {
	context.Context
	left int
}

func (e *ending) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
}

// A search that has no more time has visited all states within the number of moves that it says, and only some with one more.
func TestSearchEndsInTime(t *testing.T) {
	var levels []int // how many states there are within each number of moves
	if _, err := search.Explore(t.Context(), smallest, search.Options{Progress: func(_, states, _ int) { levels = append(levels, states) }}); err != nil {
		t.Fatal(err)
	}
	partly := 0
	for _, left := range []int{0, 10, 40, 50, 51, 52} {
		file := filepath.Join(t.TempDir(), "search")
		r, err := search.Explore(&ending{t.Context(), left}, smallest, search.Options{Checkpoint: &search.Checkpoint{File: file}})
		if err != nil || r.Finished || r.Broken != nil || r.States < levels[r.Depth] || r.States > levels[r.Depth+1] {
			t.Errorf("%v, %v; want %d to %d states", r, err, levels[r.Depth], levels[r.Depth+1])
		}
		if r.States > levels[r.Depth] && r.States < levels[r.Depth+1] {
			partly++
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the file stays after the end of the search: %v", err)
		}
	}
	if partly == 0 {
		t.Error("no search has ended between two numbers of moves")
	}
}

func verdict(t *testing.T, scope search.Scope) search.Result {
	t.Helper()
	r, err := search.Explore(t.Context(), scope, search.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
