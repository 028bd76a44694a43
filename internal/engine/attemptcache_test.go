package engine_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// fewerPodsThan returns a policy that lets nodes with fewer pods than limit pass, and prefers those
// with fewer pods.
func fewerPodsThan(limit int, signature string) *fake {
	return &fake{
		filter: func(n *snapshot.Node) policy.Verdict {
			if len(n.Pods) >= limit {
				return policy.Verdict{Reason: tooFew, Have: int64(len(n.Pods)), Want: int64(limit)}
			}
			return policy.Verdict{}
		},
		score:     func(n *snapshot.Node) int64 { return 100 - int64(len(n.Pods)) },
		signature: signature,
	}
}

// A policy with a signature is not called about a node that it let pass for another pod with the
// signature, until the node changes. A cache that is not released is used by no other attempt.
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
