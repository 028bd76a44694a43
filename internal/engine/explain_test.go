package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

func TestExplain(t *testing.T) {
	view := viewOf("good memory=8 gpus=4", "bad memory=1 gpus=1 broken=1", "half memory=4 gpus=2")
	e := newEngine(t,
		engine.WeightedPolicy{Name: "Memory", Policy: &fake{filter: atLeast("memory", 5, tooLittle), score: scoreBy("memory"), normalize: toLargest}, Weight: 2},
		engine.WeightedPolicy{Name: "GPUs", Policy: &fake{filter: atLeast("gpus", 2, tooFew), score: scoreBy("gpus")}},
		engine.WeightedPolicy{Name: "Health", Policy: &fake{filter: whole}, Weight: 1},
		engine.WeightedPolicy{Name: "Spare", Policy: &fake{score: scoreBy("gpus")}, Weight: 3},
		engine.WeightedPolicy{Name: "Indifferent", Policy: &fake{}, Weight: 1},
		engine.WeightedPolicy{Name: "Broken", Policy: &fake{prepare: func(context.Context) error { return errAnnotation }}, Weight: 1, FailurePolicy: policy.Ignore},
	)
	rest := []engine.PolicyOpinion{{Policy: "Indifferent", Weight: 1}, {Policy: "Broken", Weight: 1}}
	want := []engine.Explanation{
		{Node: "half", Fits: false, Total: 2*50 + 3*2, Policies: append([]engine.PolicyOpinion{
			{Policy: "Memory", Code: "TooLittle", Text: "too little is left", Unit: "MiB", Have: 4, Want: 5, Scored: true, Score: 50, Weight: 2},
			{Policy: "GPUs"},
			{Policy: "Health", Weight: 1},
			{Policy: "Spare", Scored: true, Score: 2, Weight: 3},
		}, rest...)},
		{Node: "bad", Fits: false, Total: 2*12 + 3*1, Policies: append([]engine.PolicyOpinion{
			// Explain calls every policy, even after one has rejected the node.
			{Policy: "Memory", Code: "TooLittle", Text: "too little is left", Unit: "MiB", Have: 1, Want: 5, Scored: true, Score: 12, Weight: 2},
			{Policy: "GPUs", Code: "TooFew", Text: "too few are left", Unit: "GPUs", Have: 1, Want: 2},
			{Policy: "Health", Code: "Broken", Text: "the node is broken", Unresolvable: true, Weight: 1},
			{Policy: "Spare", Scored: true, Score: 1, Weight: 3},
		}, rest...)},
		{Node: "good", Fits: true, Total: 2*100 + 3*4, Policies: append([]engine.PolicyOpinion{
			{Policy: "Memory", Scored: true, Score: 100, Weight: 2},
			{Policy: "GPUs"},
			{Policy: "Health", Weight: 1},
			{Policy: "Spare", Scored: true, Score: 4, Weight: 3},
		}, rest...)},
	}
	req := asking(podOf("u", "1"), view, "unknown", "half", "bad", "unknown", "good")
	for turn := range 2 { // the policies are prepared before the second turn
		all, err := e.Explain(t.Context(), req)
		got := all.Nodes
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("turn %d: explanations (-want +got):\n%s", turn, diff)
		}
	}
	if req.Nodes[0] != nil || len(req.Nodes) != 5 {
		t.Errorf("Explain changed the request: %v", req.Nodes)
	}
	if got, err := e.Explain(t.Context(), asking(podOf("u", "1"), view, "unknown")); err != nil || len(got.Nodes) != 0 {
		t.Errorf("an unknown node: got %v, error %v", got, err)
	}
}

func TestExplainCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	p := &fake{}
	p.filter = func(*snapshot.Node) policy.Verdict {
		cancel(errHungUp)
		return policy.Verdict{}
	}
	view := plainView(2000)
	e := newEngine(t, engine.WeightedPolicy{Name: "P", Policy: p})
	all, err := e.Explain(ctx, engine.Request{Pod: podOf("u", "1"), View: view, Nodes: allNodes(view)})
	got := all.Nodes
	if !errors.Is(err, errHungUp) || got != nil || p.calls().Filter > 300 {
		t.Errorf("%d explanations, error %v; want the cause, soon", len(got), err)
	}
}
