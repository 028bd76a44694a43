package engine_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Best chooses the nodes with the largest totals of Filter and Score of Engine, also when policies
// normalize, have no opinion about some nodes or have no signature, and asks about no node that is
// worse than those it chooses. The attempt goes on as without it.
func TestBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tens, unusable := rapid.Int64Range(1, 9).Draw(t, "tens"), rapid.Int64Range(2, 7).Draw(t, "unusable")
		without := rapid.Int64Range(2, 9).Draw(t, "no opinion")
		scale := rapid.Int64Range(1, 60).Draw(t, "scale")
		plain := &fake{filter: func(n *snapshot.Node) policy.Verdict {
			if numberOf(n)/10 >= tens {
				return policy.Verdict{Reason: attemptTens}
			}
			return policy.Verdict{}
		}, score: func(n *snapshot.Node) int64 { return numberOf(n) / scale % 101 }}
		if rapid.Bool().Draw(t, "signed") {
			plain.signature = "plain"
		}
		other := &fake{score: func(n *snapshot.Node) int64 {
			if numberOf(n)%without == 0 {
				return policy.NoOpinion
			}
			return numberOf(n) % 3 * 50
		}}
		if rapid.Bool().Draw(t, "normalizes") {
			other.score = func(n *snapshot.Node) int64 { return numberOf(n) % 5 * 1000 }
			other.normalize = func(scores []int64) {
				most := max(slices.Max(scores), 1)
				for i := range scores {
					scores[i] = scores[i] * policy.MaxScore / most
				}
			}
		}
		e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "plain", Weight: 2, Policy: plain}, {Name: "other", Weight: 3, Policy: other}}})
		if err != nil {
			t.Fatal(err)
		}
		view := numberedNodes(rapid.IntRange(1, 90).Draw(t, "nodes"))
		nodes := slices.Collect(view.All())
		pod := podOf("u", "1")
		var filtered, scored engine.Result
		if err := e.Filter(t.Context(), engine.Request{Pod: pod, View: view, Nodes: nodes}, &filtered); err != nil {
			t.Fatal(err)
		}
		var fitting []*snapshot.Node
		for _, i := range filtered.Kept {
			fitting = append(fitting, nodes[i])
		}
		if len(fitting) > 0 {
			if err := e.Score(t.Context(), engine.Request{Pod: pod, View: view, Nodes: fitting}, &scored); err != nil {
				t.Fatal(err)
			}
		}
		c := engine.Choice{N: rapid.IntRange(1, 20).Draw(t, "n"), First: rapid.IntRange(0, len(nodes)-1).Draw(t, "first")}
		for _, n := range nodes {
			c.Rows = append(c.Rows, int32(n.Row()))
		}
		asked := map[int32]bool{}
		c.Usable = func(i int32) (bool, bool) {
			if asked[i] {
				t.Errorf("asked twice about node %d", i)
			}
			asked[i] = true
			return int64(i)%unusable != 0, false
		}
		ranked := make([]int32, len(fitting))
		for j := range ranked {
			ranked[j] = int32(j)
		}
		behind := func(j int32) int { return (int(filtered.Kept[j]) - c.First + len(nodes)) % len(nodes) }
		slices.SortFunc(ranked, func(a, b int32) int {
			return cmp.Or(cmp.Compare(scored.Totals[b], scored.Totals[a]), cmp.Compare(behind(a), behind(b)))
		})
		var want, mayAsk []int32
		for _, j := range ranked {
			if i := filtered.Kept[j]; len(want) < c.N {
				mayAsk = append(mayAsk, i)
				if int64(i)%unusable != 0 {
					want = append(want, i)
				}
			}
		}
		a, err := e.Begin(t.Context(), pod, view)
		if err != nil {
			t.Fatal(err)
		}
		a.TakeNodeCache()
		var result engine.Result
		if err := a.Best(t.Context(), c, &result); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(result.Kept, want) {
			t.Errorf("chose %v, want %v", result.Kept, want)
		}
		if len(asked) != len(mayAsk) {
			t.Errorf("asked about %d nodes, want %d", len(asked), len(mayAsk))
		}
		r := result.Record
		if r.Nodes != len(nodes) || r.Fit != len(fitting) || r.Returned != len(want) || len(r.Rejections) != len(filtered.Record.Rejections) {
			t.Errorf("the record is %+v", r)
		}
		if len(want) > 0 && (len(r.Top) == 0 || r.Top[0].Node != nodes[want[0]].Name) {
			t.Errorf("the record has %+v as the best, want %s", r.Top, nodes[want[0]].Name)
		}
		fit := 0
		for _, n := range nodes {
			if verdict, err := a.FilterNode(n); err != nil {
				t.Fatal(err)
			} else if verdict.Fits() {
				fit++
			}
		}
		if record := a.Record(fit); record.Nodes != len(nodes) || record.Fit != len(fitting) || len(record.Rejections) != len(filtered.Record.Rejections) {
			t.Errorf("the record of the attempt is %+v", record)
		}
	})
}

// A node to which a pod is nominated is chosen only if the pod fits with that pod and without it.
func TestBestBesideNominatedPods(t *testing.T) {
	accompanied := &fake{signature: "s", score: func(*snapshot.Node) int64 { return 1 }, filter: func(n *snapshot.Node) policy.Verdict {
		if len(n.Pods) == 0 {
			return policy.Verdict{Reason: attemptTens}
		}
		return policy.Verdict{}
	}}
	e := newEngine(t, engine.WeightedPolicy{Name: "P", Policy: accompanied, Weight: 1})
	var b snapshot.Builder
	c := engine.Choice{N: 9, Usable: func(int32) (bool, bool) { return true, false }}
	for i := range 9 {
		b.SetNode(object(fmt.Sprint("n", i)))
		c.Rows = append(c.Rows, int32(i))
	}
	b.SetPod(nominee("nominated", 10, "n0"))
	there := podOf("there", "1")
	there.Spec.NodeName = "n1"
	b.SetPod(there)
	for _, cached := range []bool{false, true} {
		a, err := e.Begin(t.Context(), podOf("u", "1"), b.View())
		if err != nil {
			t.Fatal(err)
		}
		if cached {
			a.TakeNodeCache()
		}
		var result engine.Result
		if err := a.Best(t.Context(), c, &result); err != nil || !slices.Equal(result.Kept, []int32{1}) {
			t.Errorf("cached: %t: chose %v, %v, want node 1", cached, result.Kept, err)
		}
		a.ReturnNodeCache()
	}
}

// Best stops when Usable says so.
func TestBestStops(t *testing.T) {
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "s", Weight: 1, Policy: &fake{score: func(n *snapshot.Node) int64 { return numberOf(n) }}}}})
	if err != nil {
		t.Fatal(err)
	}
	view := numberedNodes(9)
	c := engine.Choice{Rows: []int32{0, 1, 2, 3, 4, 5, 6, 7, 8}, N: 5}
	c.Usable = func(i int32) (bool, bool) { return true, i == 7 }
	a, err := e.Begin(t.Context(), podOf("u", "1"), view)
	if err != nil {
		t.Fatal(err)
	}
	var result engine.Result
	if err := a.Best(t.Context(), c, &result); err != nil || !slices.Equal(result.Kept, []int32{8, 7}) {
		t.Errorf("chose %v, %v", result.Kept, err)
	}
}

// prepares is a policy that prepares this Cycle for a pod.
type prepares func(*corev1.Pod) policy.Cycle

func (p prepares) Prepare(_ context.Context, pod *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
	return p(pod), nil
}

// counted is a Cycle with a signature.
type counted struct {
	key    string
	filter func(*snapshot.Node) policy.Verdict
	score  func(*snapshot.Node) int64
}

func (c counted) Signature() string                      { return c.key }
func (c counted) Filter(n *snapshot.Node) policy.Verdict { return c.filter(n) }
func (c counted) Score(n *snapshot.Node) int64           { return c.score(n) }
