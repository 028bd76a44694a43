package engine_test

import (
	"testing"
	"time"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Each read of the clock returns one second more, so a policy takes one second for each of its
// methods that ran.
func TestPoliciesAreTimed(t *testing.T) {
	var now time.Time
	clock := func() time.Time { now = now.Add(time.Second); return now }
	both := func() *fake {
		return &fake{
			filter: func(*snapshot.Node) policy.Verdict { return policy.Verdict{} },
			score:  func(*snapshot.Node) int64 { return 1 },
		}
	}
	e, err := engine.New(engine.Options{Clock: clock, Policies: []engine.WeightedPolicy{
		{Name: "Weighted", Policy: both(), Weight: 1}, {Name: "Filter", Policy: both()},
	}})
	if err != nil {
		t.Fatal(err)
	}
	req := engine.Request{Pod: podOf("u", "1"), View: new(snapshot.View), Nodes: []*snapshot.Node{snapshot.NewNode(object("n"))}}
	var result engine.Result
	took := func(call func() error) [2]time.Duration {
		if err := call(); err != nil {
			t.Fatal(err)
		}
		return [2]time.Duration{result.Record.Policies[0].Duration, result.Record.Policies[1].Duration}
	}
	if got, want := took(func() error { return e.Filter(t.Context(), req, &result) }), [2]time.Duration{2 * time.Second, 2 * time.Second}; got != want {
		t.Errorf("prepare and filter took %v, want %v", got, want)
	}
	// One of the policies scores, the other has no weight.
	if got, want := took(func() error { return e.Score(t.Context(), req, &result) }), [2]time.Duration{2 * time.Second, time.Second}; got != want {
		t.Errorf("prepare and score took %v, want %v", got, want)
	}
}
