package engine_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// modulo rejects each node whose label, plus the signature of the fake, is a multiple of 10, and
// scores the others by that sum.
func modulo(signature *int) *fake {
	sum := func(n *snapshot.Node) int64 { return (number(n, "memory") + int64(*signature)) % 10 }
	return &fake{score: sum, filter: func(n *snapshot.Node) policy.Verdict {
		if sum(n) == 0 {
			return policy.Verdict{Reason: tooLittle}
		}
		return policy.Verdict{}
	}}
}

// Pods of a hundred templates use the cache in a cluster of 5,000 nodes.
func TestNodesAreCachedForAHundredSignatures(t *testing.T) {
	const nodes, signatures = 5000, 100
	var lines []string
	for i := range nodes {
		lines = append(lines, fmt.Sprintf("n%d memory=%d", i, 1+i%9))
	}
	view := viewOf(lines...)
	signature := 0
	p := modulo(&signature)
	e := newEngine(t, engine.WeightedPolicy{Name: "Memory", Policy: p, Weight: 1})
	req := engine.Request{View: view, Nodes: slices.Collect(view.All())[:500]}
	var result engine.Result
	for turn := range 3 * signatures {
		p.signature = fmt.Sprint(turn % signatures)
		req.Pod = podOf(fmt.Sprint("pod ", turn), "1")
		if err := e.Score(t.Context(), req, &result); err != nil {
			t.Fatal(err)
		}
		want := len(req.Nodes)
		if turn >= signatures {
			want = 0
		}
		if got := p.calls().Score; got != want {
			t.Fatalf("request %d: the policy was called about %d nodes, want %d", turn, got, want)
		}
	}
}

// The caches of an engine take 16 MiB at most, for any number of nodes and signatures and any
// length of a signature. Everything else that the engine keeps takes less than 2 MiB here.
func TestMemoryOfCachesIsLimited(t *testing.T) {
	for _, tt := range []struct {
		nodes, signatures, length int
		best                      bool // all nodes are ranked
	}{
		{10, 60_000, 0, false}, {10, 3000, 12_000, false}, {5000, 400, 0, false}, {20_000, 100, 0, false}, {5000, 400, 0, true},
	} {
		t.Run(fmt.Sprintf("%d signatures of %d bytes, %d nodes, ranked: %t", tt.signatures, tt.length, tt.nodes, tt.best), func(t *testing.T) {
			var builder snapshot.Builder
			for i := range tt.nodes {
				builder.SetNode(object(fmt.Sprint("n", i)))
			}
			view := builder.View()
			p := &fake{filter: func(*snapshot.Node) policy.Verdict { return policy.Verdict{} }, score: scoreBy("memory"), normalize: toLargest}
			e := newEngine(t, engine.WeightedPolicy{Name: "Memory", Policy: p, Weight: 1})
			req := engine.Request{View: view, Nodes: slices.Collect(view.All())[:10]}
			choice := engine.Choice{N: 1, Usable: func(int32) (bool, bool) { return true, false }}
			for n := range view.All() {
				choice.Rows = append(choice.Rows, int32(n.Row()))
			}
			prefix := strings.Repeat("x", tt.length)
			var result engine.Result
			before := heap()
			for i := range tt.signatures {
				p.signature = fmt.Sprint(prefix, i)
				req.Pod = podOf("u", fmt.Sprint(i))
				if !tt.best {
					if err := e.Filter(t.Context(), req, &result); err != nil {
						t.Fatal(err)
					}
					continue
				}
				a, err := e.Begin(t.Context(), req.Pod, view)
				if err != nil {
					t.Fatal(err)
				}
				a.TakeNodeCache()
				if err := a.Best(t.Context(), choice, &result); err != nil {
					t.Fatal(err)
				}
				a.ReturnNodeCache()
			}
			if got, most := heap()-before, int64(18<<20); got > most {
				t.Errorf("the engine keeps %d bytes, want at most %d", got, most)
			}
			runtime.KeepAlive(e)
		})
	}
}

// heap returns how many bytes are in use.
func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// Caches do not keep nodes in memory after they have changed.
func TestCachesKeepNoNodes(t *testing.T) {
	var builder snapshot.Builder
	set := func(memory int) *snapshot.View {
		for i := range 10 {
			builder.SetNode(object(fmt.Sprintf("n%d memory=%d", i, memory)))
		}
		return builder.View()
	}
	p := &fake{filter: func(*snapshot.Node) policy.Verdict { return policy.Verdict{} }}
	e := newEngine(t, engine.WeightedPolicy{Name: "Memory", Policy: p})
	ask := func(signature, resourceVersion string, view *snapshot.View) {
		p.signature = signature
		req := engine.Request{Pod: podOf("u", resourceVersion), View: view, Nodes: slices.Collect(view.All())}
		if err := e.Filter(t.Context(), req, new(engine.Result)); err != nil {
			t.Fatal(err)
		}
	}
	view := set(1)
	old := weak.Make(view.Node("n5"))
	ask("s", "1", view)
	view = set(2)
	ask("t", "2", view) // replaces the prepared evaluation of the pod
	runtime.GC()
	if n := old.Value(); n != nil {
		t.Errorf("%s is still in memory, although only the cache for another signature used it", n.Name)
	}
	runtime.KeepAlive(e)
	runtime.KeepAlive(view)
}
