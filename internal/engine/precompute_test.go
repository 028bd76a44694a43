package engine_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// eager is a policy that only precomputes.
type eager struct {
	seen   []*snapshot.View
	panics bool
}

func (*eager) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return nil, nil
}

func (e *eager) Precompute(view *snapshot.View) {
	e.seen = append(e.seen, view)
	if e.panics {
		panic("no idea")
	}
}

func TestPrecompute(t *testing.T) {
	wrong, right := &eager{panics: true}, &eager{}
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "Wrong", Policy: wrong}, {Name: "Right", Policy: right}}})
	if err != nil {
		t.Fatal(err)
	}
	view := new(snapshot.View)
	failure := (*engine.PolicyError)(nil)
	if err := e.Precompute(view); !errors.As(err, &failure) || failure.Policy != "Wrong" || len(failure.Stack) == 0 {
		t.Errorf("got error %v", err)
	}
	if len(right.seen) != 1 || right.seen[0] != view {
		t.Errorf("the other policy was called with %v", right.seen)
	}
	right.panics, wrong.panics = false, false
	if err := e.Precompute(view); err != nil {
		t.Error(err)
	}
}
