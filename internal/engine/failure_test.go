package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

var errAnnotation = errors.New(`annotation "x": "ten" is not a number`)

// typedNil is an error whose Error method panics: what `return cycle, err` returns if err is a nil
// pointer of its own type.
type typedNil struct{ text string }

func (e *typedNil) Error() string { return e.text }

// failing are policies that fail in each place where a policy can fail. Without the failure they
// would reject node b and score by s.
var failing = []struct {
	name  string
	place string // the call that fails: "Prepare", "Filter", "Score"
	err   string
	panic bool
	make  func() *fake
}{
	{"error in Prepare", "Prepare", errAnnotation.Error(), false, func() *fake {
		return &fake{prepare: func(context.Context) error { return errAnnotation }}
	}},
	{"panic in Prepare", "Prepare", "panic: boom", true, func() *fake {
		return &fake{prepare: func(context.Context) error { panic("boom") }}
	}},
	{"error of its own that looks like a cancelled request", "Prepare", "asking the sidecar: context deadline exceeded", false, func() *fake {
		return &fake{prepare: func(context.Context) error { return fmt.Errorf("asking the sidecar: %w", context.DeadlineExceeded) }}
	}},
	{"typed nil error in Prepare", "Prepare", "<nil>", false, func() *fake {
		return &fake{prepare: func(context.Context) error { return (*typedNil)(nil) }}
	}},
	{"panic in Filter", "Filter", "runtime error: index out of range", true, func() *fake {
		return &fake{filter: func(n *snapshot.Node) policy.Verdict {
			if n.Name == "c" {
				return []policy.Verdict{}[len(n.Name)]
			}
			return policy.Verdict{}
		}, score: scoreBy("s")}
	}},
	{"panic with nil in Filter", "Filter", "panic called with nil argument", true, func() *fake {
		return &fake{filter: func(*snapshot.Node) policy.Verdict { panic(nil) }}
	}},
	{"panic with an error in Score", "Score", "panic: " + errAnnotation.Error(), true, func() *fake {
		return &fake{score: func(*snapshot.Node) int64 { panic(errAnnotation) }}
	}},
	{"score out of range", "Score", "score 500 for node", false, func() *fake {
		return &fake{score: func(*snapshot.Node) int64 { return 500 }}
	}},
	{"panic in NormalizeScore", "Score", "integer divide by zero", true, func() *fake {
		return &fake{score: scoreBy("s"), normalize: func(scores []int64) { scores[0] /= int64(len(scores[:0])) }}
	}},
}

// steady are the policies beside the one that fails: Before rejects node b, After scores by s.
func steady(bad policy.Policy, failurePolicy policy.FailurePolicy) []engine.WeightedPolicy {
	return []engine.WeightedPolicy{
		{Name: "Before", Policy: &fake{filter: func(n *snapshot.Node) policy.Verdict {
			if n.Name == "b" {
				return policy.Verdict{Reason: broken}
			}
			return policy.Verdict{}
		}}, Weight: 1},
		{Name: "Bad", Policy: bad, Weight: 1, FailurePolicy: failurePolicy},
		{Name: "After", Policy: &fake{score: scoreBy("s")}, Weight: 1},
	}
}

func TestFailureFailsTheRequest(t *testing.T) {
	view := viewOf("a s=3", "b s=2", "c s=1")
	for _, tt := range failing {
		t.Run(tt.name, func(t *testing.T) {
			e := newShortEngine(t, 1, steady(tt.make(), policy.Fail)...)
			req := asking(podOf("u", "1"), view, "a", "b", "c")
			var result engine.Result
			for name, ask := range map[string]func() error{
				"Filter": func() error { return e.Filter(t.Context(), req, &result) },
				"Score":  func() error { return e.Score(t.Context(), req, &result) },
				"FitsAny": func() error {
					_, err := e.FitsAny(t.Context(), asking(req.Pod, view, "c"))
					return err
				},
				"Verdict": func() error {
					c, err := e.Begin(t.Context(), req.Pod, view)
					if err == nil {
						_, err = c.Verdict(view.Node("c"))
					}
					return err
				},
				"FilterNode": func() error {
					c, err := e.Begin(t.Context(), req.Pod, view)
					if err == nil {
						_, err = c.FilterNode(view.Node("c"))
						result = engine.Result{Record: c.Record(0)}
					} else {
						_ = c.Filter(t.Context(), req.Nodes, nil, &result)
					}
					return err
				},
				"Explain": func() error {
					all, err := e.Explain(t.Context(), req)
					explanations := all.Nodes
					if err != nil && explanations != nil {
						t.Errorf("Explain fails with %d explanations", len(explanations))
					}
					return err
				},
			} {
				if tt.place == "Filter" && name == "Score" || tt.place == "Score" && !slices.Contains([]string{"Filter", "Score", "Explain"}, name) {
					continue // no policy fails
				}
				err := ask()
				failure := new(engine.PolicyError)
				if !errors.As(err, &failure) || failure.Policy != "Bad" || !strings.Contains(err.Error(), tt.err) || !strings.HasPrefix(err.Error(), "policy Bad: ") {
					t.Fatalf("%s: got error %v, want one of policy Bad with %q", name, err, tt.err)
				}
				if tt.panic != (failure.Stack != nil) || tt.panic && !strings.Contains(string(failure.Stack), "failure_test.go") {
					t.Errorf("%s: the stack is %q", name, failure.Stack)
				}
				if slices.Contains([]string{"Explain", "FitsAny", "Verdict"}, name) {
					continue // without a record
				}
				if result.Record.Error != err.Error() {
					t.Errorf("%s: the record's error is %q, want %q", name, result.Record.Error, err)
				}
				if len(result.Kept)+len(result.Rejected)+len(result.Totals)+len(result.Record.Rejections) > 0 {
					t.Errorf("%s fails, and returns a result: %+v", name, result)
				}
			}
			// The engine keeps working: requests about nodes and pods that cause no failure
			// succeed.
			if tt.name == "panic in Filter" {
				if err := e.Filter(t.Context(), asking(podOf("u", "1"), view, "a", "b"), &result); err != nil || len(result.Kept) != 1 {
					t.Errorf("after the failure: kept %v, error %v", result.Kept, err)
				}
			}
		})
	}
}

func TestFailureLeavesThePolicyOut(t *testing.T) {
	view := viewOf("a s=3", "b s=2", "c s=1", "d s=9")
	for _, tt := range failing {
		for _, uid := range []string{"u", ""} {
			t.Run(fmt.Sprintf("%s/uid=%q", tt.name, uid), func(t *testing.T) {
				bad := tt.make()
				e := newShortEngine(t, 2, steady(bad, policy.Ignore)...)
				without := newShortEngine(t, 2, steady(&fake{}, policy.Ignore)...) // as if the policy did not exist
				req := asking(podOf(uid, "1"), view, "c", "a", "b", "d")
				for turn := range 3 {
					var got, want engine.Result
					if err := e.Filter(t.Context(), req, &got); err != nil {
						t.Fatal(err)
					}
					if err := without.Filter(t.Context(), req, &want); err != nil {
						t.Fatal(err)
					}
					if kept(req, &got) != kept(req, &want) || rejected(req, &got) != rejected(req, &want) {
						t.Errorf("turn %d: kept %s, rejected %s; want %s, %s", turn, kept(req, &got), rejected(req, &got), kept(req, &want), rejected(req, &want))
					}
					skipped := got.Record.Policies[1].IgnoredError
					if !strings.HasPrefix(skipped, "policy Bad: ") || !strings.Contains(skipped, tt.err) || got.Record.Error != "" {
						t.Errorf("turn %d: in the record, Bad is ignored for %q and the request fails with %q", turn, skipped, got.Record.Error)
					}
					for node, want := range map[string]bool{"c": true, "b": false} { // Before rejects b
						c, err := e.Begin(t.Context(), req.Pod, view)
						if err != nil {
							t.Fatal(err)
						}
						fits, err := e.FitsAny(t.Context(), asking(req.Pod, view, node))
						all, also := c.Rejecting(view.Node(node))
						v, failed := c.FilterNode(view.Node(node))
						if fits != want || (len(all) == 0) != want || v.Fits() != want || errors.Join(err, also, failed) != nil {
							t.Errorf("turn %d: %s: fits: %v, rejecting: %v, verdict: %v, %v", turn, node, fits, all, v, errors.Join(err, also, failed))
						}
						if said := c.Record(1).Policies[1].IgnoredError; node == "c" && (said == "") != (tt.place == "Score") {
							t.Errorf("turn %d: %s: Bad is ignored for %q", turn, node, said)
						}
					}
					if err := e.Score(t.Context(), req, &got); err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff([]int64{1, 3, 2, 9}, got.Totals); tt.place != "Filter" && diff != "" {
						t.Errorf("turn %d: totals (-want +got):\n%s", turn, diff)
					}
				}
			})
		}
	}
}

// A cycle that implements neither Filter nor Score is a programming error (for example, pointer
// methods on a cycle that is not a pointer), not a policy without an opinion.
func TestCycleThatDoesNothing(t *testing.T) {
	e := newEngine(t, engine.WeightedPolicy{Name: "Mistake", Policy: mistake{}})
	var result engine.Result
	err := e.Filter(t.Context(), asking(podOf("u", "1"), viewOf("a"), "a"), &result)
	if want := "policy Mistake: its cycle is a engine_test.mistake, which neither filters nor scores"; err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
}

type mistake struct{}

func (m mistake) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return m, nil
}

func (m *mistake) Filter(*snapshot.Node) policy.Verdict { return policy.Verdict{} }

var errHungUp = errors.New("the caller hung up")

// A request whose context has ended returns the cause promptly, and ignores no policy.
func TestCancelled(t *testing.T) {
	const nodes, soon = 2000, 16
	view := plainView(nodes)
	all := allNodes(view)

	tests := []struct {
		name string
		// at is the call (the first, or the hundredth about a node) during which the context ends.
		at string
	}{
		{"before the request", ""},
		{"in Prepare, which returns the context's error", "Prepare"},
		{"in Prepare, which does not care", "Prepare carelessly"},
		{"in Filter", "Filter"},
		{"in Score", "Score"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			if tt.at == "" {
				cancel(errHungUp)
			}
			p := &fake{}
			p.prepare = func(ctx context.Context) error {
				if strings.HasPrefix(tt.at, "Prepare") {
					cancel(errHungUp)
				}
				if tt.at == "Prepare" {
					return fmt.Errorf("listing: %w", ctx.Err())
				}
				return nil
			}
			p.filter = func(*snapshot.Node) policy.Verdict {
				if tt.at == "Filter" && p.filtered.Load() == 100 {
					cancel(errHungUp)
				}
				return policy.Verdict{}
			}
			p.score = func(*snapshot.Node) int64 {
				if tt.at == "Score" && p.scored.Load() == 100 {
					cancel(errHungUp)
				}
				return 1
			}
			after := &fake{filter: whole, score: scoreBy("s")}
			e := newShortEngine(t, 1,
				engine.WeightedPolicy{Name: "P", Policy: p, Weight: 1, FailurePolicy: policy.Ignore},
				engine.WeightedPolicy{Name: "After", Policy: after, Weight: 1, FailurePolicy: policy.Ignore},
			)
			req := engine.Request{Pod: podOf("u", "1"), View: view, Nodes: all}
			var result engine.Result
			err := e.Filter(ctx, req, &result)
			if !errors.Is(err, errHungUp) {
				t.Errorf("got error %v, want the cause", err)
			}
			if result.Record == nil || result.Record.Error != errHungUp.Error() {
				t.Fatalf("got record %+v, want one with the cause", result.Record)
			}
			for _, member := range result.Record.Policies {
				if member.IgnoredError != "" {
					t.Errorf("%s is ignored: %s", member.Name, member.IgnoredError)
				}
			}
			made := p.calls()
			switch tt.at {
			case "":
				if made != (calls{}) {
					t.Errorf("a request that has ended calls the policies: %+v", made)
				}
			case "Filter":
				if made.Filter > 100+soon {
					t.Errorf("Filter was called %d times, %d of them after the end", made.Filter, made.Filter-100)
				}
			case "Score":
				if made.Score > 100+soon || after.calls().Score > 0 {
					t.Errorf("Score was called %d times, %d of them after the end", made.Score, made.Score-100)
				}
			default:
				if made.Filter > 0 || after.calls().Prepare > 0 {
					t.Errorf("policies were called after the end: %+v", made)
				}
			}

			// The next request succeeds with all policies; its cached result does not answer a
			// request that has ended.
			tt.at = "never"
			if err := e.Filter(t.Context(), req, &result); err != nil || len(result.Kept) != 1 {
				t.Errorf("the next request: kept %v, error %v", result.Kept, err)
			}
			if fits, err := e.FitsAny(ctx, req); fits || !errors.Is(err, errHungUp) {
				t.Errorf("a request that has ended: %v, %v", fits, err)
			}
		})
	}
}
