package engine_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// A sequence of requests calls a policy with a signature as follows: it does not call the policy
// about a node that passed, or that has a score, for another pod with the same signature while the
// node does not change.
func TestNodesAreCachedBySignature(t *testing.T) {
	builder := new(snapshot.Builder)
	var all []string
	for i := range 10 {
		all = append(all, fmt.Sprintf("n%d", i))
		builder.SetNode(object(fmt.Sprintf("n%d memory=%d", i, i))) // the policy rejects five of them
	}
	first := builder.View()
	builder.SetNode(object("n9 memory=8"))
	builder.DeleteNode("n5")
	builder.SetNode(object("n10 memory=7"))
	second := builder.View()
	passing := []string{"n5", "n6", "n7", "n8", "n9"}
	many := append(slices.Clone(all[1:]), "unknown") // of the second view, and a node that it does not hold

	type request struct {
		verb      string
		signature string
		view      *snapshot.View
		asked     []string
		want      calls
	}
	for _, tt := range []struct {
		name      string
		normalize func([]int64)
		requests  []request
	}{
		{"filter", nil, []request{
			{"filter", "s", first, all, calls{Prepare: 1, Filter: 10}},
			{"filter", "s", first, all, calls{Prepare: 1, Filter: 5}}, // the rejected nodes
			{"filter", "t", first, all, calls{Prepare: 1, Filter: 10}},
			{"filter", "", first, all, calls{Prepare: 1, Filter: 10}},
			{"filter", "s", first, all, calls{Prepare: 1, Filter: 5}},
		}},
		{"nodes change", nil, []request{
			{"filter", "s", first, all, calls{Prepare: 1, Filter: 10}},
			{"filter", "s", second, many, calls{Prepare: 1, Filter: 5}}, // n1 to n4, and n9, which has changed
			{"filter", "s", second, many, calls{Prepare: 1, Filter: 4}},
			{"score", "s", second, append(many[1:], "n10"), calls{Prepare: 1, Score: 8}},
			{"score", "s", second, append(many[1:], "n10"), calls{Prepare: 1}},
		}},
		{"score", nil, []request{
			{"score", "s", first, all, calls{Prepare: 1, Score: 10}},
			{"score", "s", first, all, calls{Prepare: 1}},
			{"score", "t", first, all, calls{Prepare: 1, Score: 10}},
			{"filter", "s", first, all, calls{Prepare: 1, Filter: 10}},
		}},
		{"score and normalize", toLargest, []request{
			{"score", "s", first, all, calls{Prepare: 1, Score: 10, NormalizeScore: 1}},
			{"score", "s", first, all, calls{Prepare: 1, NormalizeScore: 1}},
		}},
		{"few nodes", nil, []request{
			{"filter", "s", first, passing, calls{Prepare: 1, Filter: 5}},
			{"filter", "s", first, passing, calls{Prepare: 1, Filter: 5}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &fake{filter: atLeast("memory", 5, tooLittle), score: scoreBy("memory"), normalize: tt.normalize}
			e := newEngine(t, engine.WeightedPolicy{Name: "Memory", Policy: p, Weight: 1})
			var result engine.Result
			for i, r := range tt.requests {
				p.signature = r.signature
				req := asking(podOf(fmt.Sprintf("pod %d", i), "1"), r.view, r.asked...)
				ask := e.Filter
				if r.verb == "score" {
					ask = e.Score
				}
				if err := ask(t.Context(), req, &result); err != nil {
					t.Fatal(err)
				}
				if got := p.calls(); got != r.want {
					t.Errorf("request %d (%s %v): calls %+v, want %+v", i, r.verb, r.asked, got, r.want)
				}
			}
		})
	}
}

// Concurrent requests about the same pods, over several views, get the responses of a new engine.
func TestCachesConcurrently(t *testing.T) {
	members := []engine.WeightedPolicy{
		{Name: "Memory", Policy: &fake{filter: atLeast("memory", 5, tooLittle), score: scoreBy("memory")}, Weight: 1},
		{Name: "GPUs", Policy: &fake{filter: atLeast("gpus", 2, tooFew), score: scoreBy("gpus"), normalize: toLargest}, Weight: 2},
	}
	builder := new(snapshot.Builder)
	var views []*snapshot.View
	for i := range 3 {
		for n := range 50 {
			builder.SetNode(object(fmt.Sprintf("n%02d memory=%d gpus=%d", n, (n*7+i)%10, (n*3+i)%5)))
		}
		views = append(views, builder.View())
	}
	for i := range members {
		members[i].Policy.(*fake).signature = "the same for all pods"
	}
	pods := []*corev1.Pod{podOf("u", "1"), podOf("u", "2"), podOf("v", "1")}
	e := newShortEngine(t, 3, members...)

	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(g)))
			var got, want engine.Result
			for range 25 {
				view := views[random.IntN(len(views))]
				nodes := slices.Collect(view.All())
				random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
				req := engine.Request{Pod: pods[random.IntN(len(pods))], View: view, Nodes: nodes[:random.IntN(len(nodes))]}
				fresh := newShortEngine(t, 3, members...)
				ask, askFresh := e.Filter, fresh.Filter
				if random.IntN(2) == 0 {
					ask, askFresh = e.Score, fresh.Score
				}
				if err := ask(t.Context(), req, &got); err != nil {
					t.Error(err)
				}
				if err := askFresh(t.Context(), req, &want); err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(engine.Result{}), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("goroutine %d: response (-fresh +got):\n%s", g, diff)
				}
			}
		})
	}
	wg.Wait()
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
