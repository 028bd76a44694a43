package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
)

// FitsAny agrees with Filter, also when policies fail, and calls the policies about no more nodes than necessary.
func TestFitsAny(t *testing.T) {
	view := viewOf("a s=1", "b s=2", "c s=3")
	short := &policy.Reason{Code: "Short", Text: "too short"}
	for want, fits := range map[int64]string{1: "a", 2: "b", 3: "c", 4: ""} {
		p := &fake{filter: atLeast("s", want, short)}
		e := newEngine(t, engine.WeightedPolicy{Name: "P", Policy: p})
		for _, asked := range []string{"a b c", "c b a", "a missing", "missing", "a b", ""} {
			req := asking(podOf("u", "1"), view, strings.Fields(asked)...)
			var result engine.Result
			if err := e.Filter(t.Context(), req, &result); err != nil {
				t.Fatal(err)
			}
			got, err := e.FitsAny(t.Context(), req)
			if err != nil || got != (len(result.Kept) > 0) {
				t.Errorf("request %q for nodes from %q on: %v, %v; Filter keeps %q", asked, fits, got, err, kept(req, &result))
			}
		}
	}
	p := &fake{filter: atLeast("s", 2, short)}
	if fits, err := newEngine(t, engine.WeightedPolicy{Name: "P", Policy: p}).FitsAny(t.Context(), asking(podOf("u", "1"), view, "a", "b", "c")); !fits || err != nil {
		t.Errorf("%v, %v", fits, err)
	}
	if got := p.calls(); got != (calls{Prepare: 1, Filter: 2}) {
		t.Errorf("got calls %+v; b fits, so no call about c is necessary", got)
	}
}

func TestFitsAnyWithFailures(t *testing.T) {
	view := viewOf("a s=3", "b s=2", "c s=1")
	for _, tt := range failing {
		if tt.place == "Score" {
			continue // no policy scores
		}
		t.Run(tt.name, func(t *testing.T) {
			for asked, want := range map[string]bool{"c": true, "b c": true, "b": false} { // Before rejects b
				req := asking(podOf("u", "1"), view, strings.Fields(asked)...)
				if fits, err := newEngine(t, steady(tt.make(), policy.Ignore)...).FitsAny(t.Context(), req); fits != want || err != nil {
					t.Errorf("%s: %v, %v", asked, fits, err)
				}
			}
			failure := new(engine.PolicyError)
			if fits, err := newEngine(t, steady(tt.make(), policy.Fail)...).FitsAny(t.Context(), asking(podOf("u", "1"), view, "c")); fits || !errors.As(err, &failure) {
				t.Errorf("%v, %v", fits, err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if fits, err := newEngine(t).FitsAny(ctx, asking(podOf("u", "1"), view, "a")); fits || !errors.Is(err, context.Canceled) {
		t.Errorf("a request that has ended: %v, %v", fits, err)
	}
}

// FitsAny neither uses nor fills the cache of the nodes.
func TestFitsAnyDisturbsNothing(t *testing.T) {
	view := viewOf("a s=1", "b s=2", "c s=2", "d s=2", "e s=2", "f s=2", "g s=2", "h s=2")
	p := &fake{filter: atLeast("s", 2, &policy.Reason{Code: "Short"}), signature: "s"}
	e := newEngine(t, engine.WeightedPolicy{Name: "P", Policy: p})
	req := asking(podOf("u", "1"), view, "a", "b", "c", "d", "e", "f", "g", "h")
	var result engine.Result
	for i, want := range []int{8, 1} { // the cache has the nodes that passed
		if fits, err := e.FitsAny(t.Context(), req); !fits || err != nil {
			t.Fatal(fits, err)
		}
		if got := p.calls(); got != (calls{Prepare: 1, Filter: 2}) {
			t.Errorf("FitsAny, time %d: %+v", i, got)
		}
		if err := e.Filter(t.Context(), req, &result); err != nil {
			t.Fatal(err)
		}
		if got := p.calls(); got != (calls{Prepare: 1, Filter: want}) {
			t.Errorf("filter call %d: %+v, want %d nodes evaluated", i, got, want)
		}
	}
}
