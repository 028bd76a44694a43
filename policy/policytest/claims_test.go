package policytest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

var brokenUnit = &policy.Reason{Code: "BrokenUnit", Text: "the unit that the pod holds is gone"}

// one allocates the only unit of each node. forgetful is a bug in Filter; selfish and strict are bugs in ValidateClaim.
type one struct{ forgetful, trusting, selfish, strict bool }

func (o one) evaluate(l *snapshot.Ledger, uid types.UID) policy.Verdict {
	others := l.Without(func(other types.UID) bool { return other == uid && !o.forgetful })
	if others != nil && len(others.Pods) > 0 {
		return policy.Verdict{Reason: tooMany}
	}
	return policy.Verdict{}
}

func (o one) serves(l *snapshot.Ledger, uid types.UID) bool {
	return l.Pod(uid) == nil || l.Unit("one").Amount(uid) == 1
}

func (o one) Prepare(_ context.Context, pod *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
	return filterFunc(func(n *snapshot.Node) policy.Verdict {
		l := n.Ledger("units")
		if o.trusting && !o.serves(l, pod.UID) {
			return policy.Verdict{Reason: tooMany}
		}
		return o.evaluate(l, pod.UID)
	}), nil
}

func (o one) Ledgers(_ *corev1.Pod, n *snapshot.Node) ([]snapshot.LedgerKey, error) {
	return []snapshot.LedgerKey{{Resource: "units", Node: n.Name}}, nil
}

func (o one) Reserve(ask policy.ReserveRequest) (policy.Claim, policy.Verdict) {
	return policy.Claim{
		Units: []policy.Capacity{{Unit: "one", Capacity: 1}}, Amounts: []policy.Amount{{Unit: "one", Amount: 1}},
	}, o.evaluate(ask.Ledger, ask.Pod.UID)
}

func (o one) ValidateClaim(ask policy.ReserveRequest) (after []types.UID, verdict policy.Verdict) {
	if o.selfish {
		after = append(after, ask.Pod.UID)
	}
	if o.strict || !o.serves(ask.Ledger, ask.Pod.UID) {
		verdict.Reason = brokenUnit
	}
	return after, verdict
}

func TestClaimsRule(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy one
		says   string // "": no failure
	}{
		{"good", one{}, ""},
		{"a pod is in the way of itself", one{forgetful: true}, "the pod can be bound: true, but Filter returns TooMany"},
		{"Filter rejects for a claim that will be replaced", one{trusting: true}, "units that are gone: the pod can be bound: true, but Filter returns TooMany"},
		{"a pod waits for itself", one{selfish: true}, "returns the pod itself as one to bind before it"},
		{"no claim is good enough", one{strict: true}, "ValidateClaim returns BrokenUnit, have 0, want 0 for what Reserve has just chosen"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			errs := policytest.Check(options(func() (policy.Policy, error) { return tt.policy, nil }))
			if tt.says == "" && len(errs) == 0 {
				return
			}
			if rules := broken(errs); !slices.Equal(rules, []string{"claims"}) || !strings.Contains(errors.Join(errs...).Error(), tt.says) {
				t.Errorf("broken %v: %v, want %q", rules, errors.Join(errs...), tt.says)
			}
		})
	}
}
