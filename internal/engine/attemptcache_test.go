package engine_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// podOn returns a pod on the node with the number.
func podOn(number int, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("n%03d", number)},
	}
}

// fewerPodsThan returns a policy that lets nodes with fewer pods than limit pass, and prefers those with fewer pods.
func fewerPodsThan(limit int, signature string) *fake {
	return &fake{
		filter: func(n *snapshot.Node) policy.Verdict {
			if len(n.Pods) >= limit {
				return policy.Verdict{Reason: attemptTens, Have: int64(len(n.Pods)), Want: int64(limit)}
			}
			return policy.Verdict{}
		},
		score:     func(n *snapshot.Node) int64 { return 100 - int64(len(n.Pods)) },
		signature: signature,
	}
}

// Attempts that share a cache get the verdicts, records and scores of attempts without one, while pods come to nodes, and for
// nodes with other pods than in the View.
func TestAttemptsWithACache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count, limit := rapid.IntRange(1, 40).Draw(t, "nodes"), rapid.IntRange(1, 3).Draw(t, "limit")
		second := rapid.SampledFrom([]string{"", "s"}).Draw(t, "second signature")
		build := func(first, second string) *engine.Engine {
			e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{
				{Name: "first", Weight: 1, Policy: fewerPodsThan(limit, first)}, {Name: "second", Weight: 2, Policy: fewerPodsThan(limit+1, second)},
			}})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		cached, plain := build("s", second), build("", "")
		var b snapshot.Builder
		for i := range count {
			b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%03d", i)}})
		}
		for turn := range rapid.IntRange(1, 6).Draw(t, "attempts") {
			if turn > 0 {
				b.SetPod(podOn(rapid.IntRange(0, count-1).Draw(t, "bound to"), fmt.Sprint("bound ", turn)))
			}
			view := b.View()
			nodes := slices.Collect(view.All())
			if other := rapid.IntRange(-1, count-1).Draw(t, "other pods on"); other >= 0 {
				nodes[other] = nodes[other].With(podOn(other, "supposed"))
			}
			pod := podOf(fmt.Sprint("pod ", turn), "1")
			compareAttempts(t, newAttempt(t, cached, pod, view), newAttempt(t, plain, pod, view), nodes, view)
		}
	})
}

func newAttempt(t *rapid.T, e *engine.Engine, pod *corev1.Pod, view *snapshot.View) *engine.Cycle {
	a, err := e.Begin(t.Context(), pod, view)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// compareAttempts runs both attempts, the first one with a cache.
func compareAttempts(t *rapid.T, cached, plain *engine.Cycle, nodes []*snapshot.Node, view *snapshot.View) {
	cached.TakeNodeCache()
	defer cached.ReturnNodeCache()
	fits := make([]bool, len(nodes))
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() {
			if n == view.At(n.Row()) && cached.Fits(n.Row(), view.Version(n.Row())) {
				fits[i] = true
				return
			}
			verdict, err := cached.FilterNode(n)
			fits[i] = err == nil && verdict.Fits()
		})
	}
	group.Wait()
	var kept []*snapshot.Node
	var rows []int32
	for i, n := range nodes {
		if verdict, err := plain.FilterNode(n); err != nil || verdict.Fits() != fits[i] {
			t.Fatalf("%s fits: %v, want %v, %v", n.Name, fits[i], verdict.Fits(), err)
		}
		if fits[i] {
			kept, rows = append(kept, n), append(rows, int32(n.Row()))
		}
	}
	got, want := cached.Record(len(kept)), plain.Record(len(kept))
	if got.Nodes != want.Nodes || len(got.Rejections) != len(want.Rejections) || len(want.Rejections) > 0 && got.Rejections[0].Nodes != want.Rejections[0].Nodes {
		t.Fatalf("the record is %+v, want %+v", got, want)
	}
	var result, reference engine.Result
	if err := cached.Score(t.Context(), kept, rows, &result); err != nil {
		t.Fatal(err)
	}
	if err := plain.Score(t.Context(), kept, nil, &reference); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(result.Totals, reference.Totals) {
		t.Fatalf("the totals are %v, want %v", result.Totals, reference.Totals)
	}
}

// A policy with a signature is not called about a node that it let pass for another pod with the signature, until the node
// changes. A cache that is not released is used by no other attempt.
func TestAttemptsFindTheirResultsInTheCache(t *testing.T) {
	const count = 10
	p := fewerPodsThan(3, "s")
	e := newEngine(t, engine.WeightedPolicy{Name: "p", Policy: p})
	var b snapshot.Builder
	for i := range count {
		b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%03d", i)}})
	}
	calls := func(what string, a *engine.Cycle, view *snapshot.View, want int) {
		t.Helper()
		for n := range view.All() {
			if !a.Fits(n.Row(), view.Version(n.Row())) {
				if _, err := a.FilterNode(n); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := p.calls().Filter; got != want {
			t.Errorf("%s: the policy was called about %d nodes, want %d", what, got, want)
		}
	}
	attempt := func(name string, view *snapshot.View) *engine.Cycle {
		a, err := e.Begin(t.Context(), podOf(name, "1"), view)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	view := b.View()
	calls("without a cache", attempt("a", view), view, count)
	first := attempt("b", view)
	first.TakeNodeCache()
	calls("with an empty cache", first, view, count)
	second := attempt("c", view)
	second.TakeNodeCache()
	calls("beside an attempt that has the cache", second, view, count)
	second.ReturnNodeCache()
	b.SetPod(podOn(4, "bound"))
	view = b.View()
	third := attempt("d", view)
	third.TakeNodeCache()
	calls("after one node has changed", third, view, 1)
	first.ReturnNodeCache()
}
