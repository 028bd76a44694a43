package engine_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

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
