package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
)

// A probe agrees with Filter about each node, and names every policy that rejects it, which Filter does not.
func TestProbeAgreesWithFilter(t *testing.T) {
	view := viewOf("a s=1 t=3", "b s=2 t=2", "c s=3 t=1", "d s=1 t=1")
	short, thin := &policy.Reason{Code: "Short"}, &policy.Reason{Code: "Thin"}
	e := newEngine(t,
		engine.WeightedPolicy{Name: "S", Policy: &fake{filter: atLeast("s", 2, short)}, Weight: 3},
		engine.WeightedPolicy{Name: "T", Policy: &fake{filter: atLeast("t", 2, thin)}})
	want := map[string]string{"a": "S Short 1 2", "b": "", "c": "T Thin 1 2", "d": "S Short 1 2, T Thin 1 2"}
	probe, err := e.Begin(t.Context(), podOf("u", "1"), view)
	if err != nil {
		t.Fatal(err)
	}
	req := asking(podOf("u", "1"), view, "a", "b", "c", "d")
	var result engine.Result
	if err := e.Filter(t.Context(), req, &result); err != nil {
		t.Fatal(err)
	}
	for i, n := range req.Nodes {
		v, err := probe.Verdict(n)
		passes := v.Fits()
		if err != nil || passes != slices.Contains(result.Kept, int32(i)) {
			t.Errorf("%s: %v, %v; Filter keeps %q", n.Name, passes, err, kept(req, &result))
		}
		all, err := probe.Rejecting(n)
		var got []string
		for _, o := range all {
			got = append(got, strings.Join([]string{o.Policy, o.Code, number64(o.Have), number64(o.Want)}, " "))
		}
		if err != nil || strings.Join(got, ", ") != want[n.Name] {
			t.Errorf("%s: %q, %v; want %q", n.Name, got, err, want[n.Name])
		}
	}
}

func number64(n int64) string { return string(rune('0' + n)) }

// A probe with a policy that panics ignores the policy, or returns its error, as its failurePolicy says.
func TestProbeWithFailures(t *testing.T) {
	view := viewOf("a s=3", "b s=2", "c s=1")
	for _, tt := range failing {
		if tt.place == "Score" {
			continue // no policy scores
		}
		t.Run(tt.name, func(t *testing.T) {
			pod := podOf("u", "1")
			probe, err := newEngine(t, steady(tt.make(), policy.Ignore)...).Begin(t.Context(), pod, view)
			if err != nil {
				t.Fatal(err)
			}
			for node, want := range map[string]bool{"c": true, "b": false} { // Before rejects b
				v, err := probe.Verdict(view.Node(node))
				passes := v.Fits()
				all, also := probe.Rejecting(view.Node(node))
				if passes != want || (len(all) == 0) != want || err != nil || also != nil {
					t.Errorf("%s: %v, %v; %v, %v", node, passes, err, all, also)
				}
			}
			probe, err = newEngine(t, steady(tt.make(), policy.Fail)...).Begin(t.Context(), pod, view)
			if err == nil {
				_, err = probe.Verdict(view.Node("c"))
			}
			if failure := new(engine.PolicyError); !errors.As(err, &failure) {
				t.Errorf("the error is %v", err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newEngine(t).Begin(ctx, podOf("u", "1"), view); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that has ended: %v", err)
	}
}

// A probe neither uses nor fills the cache of the nodes.
func TestProbeDisturbsNothing(t *testing.T) {
	view := viewOf("a s=1", "b s=2", "c s=2", "d s=2", "e s=2", "f s=2", "g s=2", "h s=2")
	p := &fake{filter: atLeast("s", 2, &policy.Reason{Code: "Short"}), signature: "s"}
	e := newEngine(t, engine.WeightedPolicy{Name: "P", Policy: p})
	req := asking(podOf("u", "1"), view, "a", "b", "c", "d", "e", "f", "g", "h")
	var result engine.Result
	for i, want := range []int{8, 1} { // the cache has the nodes that passed
		probe, err := e.Begin(t.Context(), req.Pod, view)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := probe.Verdict(view.Node("b")); !v.Fits() || err != nil {
			t.Errorf("%v, %v", v, err)
		}
		if got := p.calls(); got != (calls{Prepare: 1, Filter: 1}) {
			t.Errorf("probe %d: %+v", i, got)
		}
		if err := e.Filter(t.Context(), req, &result); err != nil {
			t.Fatal(err)
		}
		if got := p.calls(); got != (calls{Prepare: 1, Filter: want}) {
			t.Errorf("filter call %d: %+v, want %d nodes evaluated", i, got, want)
		}
	}
}
