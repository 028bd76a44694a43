package policytest_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

var brokenUnit = &policy.Reason{Code: "BrokenUnit", Text: "the unit that the pod holds is gone"}

// one allocates the only unit of each node. forgetful is a bug in Filter; selfish and strict are bugs in ValidateAllocation; reserve, if
// not nil, changes what Reserve returns.
type one struct {
	forgetful, trusting, selfish, strict, unlimited bool

	resources []corev1.ResourceName
	reserve   func(policy.ReserveRequest, *policy.Allocation, *policy.Verdict)
}

func (o one) evaluate(l *snapshot.Ledger, uid types.UID) policy.Verdict {
	others := l.Without(func(other types.UID) bool { return other == uid && !o.forgetful })
	if others != nil && len(others.Pods) > 0 && !o.unlimited {
		return policy.Verdict{Reason: tooMany}
	}
	return policy.Verdict{}
}

func (o one) serves(l *snapshot.Ledger, uid types.UID) bool {
	return l.Pod(uid) == nil || o.unlimited || l.Unit("one").Amount(uid) == 1
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

func (o one) Inputs() policy.Inputs { return policy.Inputs{Resources: o.resources} }

func (o one) Ledgers(_ *corev1.Pod, n *snapshot.Node) ([]snapshot.LedgerKey, error) {
	return []snapshot.LedgerKey{{Resource: "units", Node: n.Name}}, nil
}

func (o one) Reserve(ask policy.ReserveRequest) (policy.Allocation, policy.Verdict) {
	allocation := policy.Allocation{Units: []policy.Capacity{{Unit: "one", Capacity: 1}}, Amounts: []policy.Amount{{Unit: "one", Amount: 1}}}
	verdict := o.evaluate(ask.Ledger, ask.Pod.UID)
	if o.reserve != nil {
		o.reserve(ask, &allocation, &verdict)
	}
	return allocation, verdict
}

func (o one) ValidateAllocation(ask policy.ReserveRequest) (after []types.UID, verdict policy.Verdict) {
	if o.selfish {
		after = append(after, ask.Pod.UID)
	}
	if o.strict || !o.serves(ask.Ledger, ask.Pod.UID) {
		verdict.Reason = brokenUnit
	}
	return after, verdict
}

func TestAllocationsRule(t *testing.T) {
	calls := 0
	for _, tt := range []struct {
		name   string
		policy one
		says   string // "": no failure
	}{
		{"good", one{}, ""},
		{"a pod is in the way of itself", one{forgetful: true}, "the pod can be bound: true, but Filter returns TooMany"},
		{"Filter rejects for an allocation that will be replaced", one{trusting: true}, "units that are gone: the pod can be bound: true, but Filter returns TooMany"},
		{"a pod waits for itself", one{selfish: true}, "returns the pod itself as one to bind before it"},
		{"no allocation is good enough", one{strict: true}, "ValidateAllocation returns BrokenUnit, have 0, want 0 for what Reserve has just chosen"},
		{"for a pod without a call", one{resources: []corev1.ResourceName{"example.com/fpga"}}, "the pod requests none of Inputs().Resources, and Inputs().AnyPod is false"},
		{"an allocation of nothing", one{reserve: func(_ policy.ReserveRequest, c *policy.Allocation, _ *policy.Verdict) { c.Amounts = nil }}, "the allocation has no amounts"},
		{"more units than a ledger holds", one{reserve: func(_ policy.ReserveRequest, c *policy.Allocation, _ *policy.Verdict) {
			c.Units = slices.Repeat(c.Units, 65)
		}}, "65 units, the limit of a ledger is 64"},
		{"too long an annotation", one{reserve: func(_ policy.ReserveRequest, c *policy.Allocation, _ *policy.Verdict) {
			c.Annotations = map[string]string{"example.com/a": strings.Repeat("x", 4097)}
		}}, `annotation "example.com/a" has 4097 bytes, the limit is 4096`},
		{"an allocation of less than 1", one{reserve: func(_ policy.ReserveRequest, c *policy.Allocation, _ *policy.Verdict) { c.Amounts[0].Amount = 0 }}, `an allocation of 0 of unit "one": must be at least 1`},
		{"an allocation of another unit", one{reserve: func(_ policy.ReserveRequest, c *policy.Allocation, _ *policy.Verdict) { c.Amounts[0].Unit = "two" }}, `the allocation names unit "two", which does not exist`},
		{"an allocation of more than there is", one{reserve: func(_ policy.ReserveRequest, c *policy.Allocation, _ *policy.Verdict) { c.Amounts[0].Amount = 2 }}, `an allocation of 2 of unit "one": 0 of 1 are allocated already`},
		{"Reserve rejects", one{reserve: func(_ policy.ReserveRequest, _ *policy.Allocation, v *policy.Verdict) { v.Reason = tooMany }}, "the pod fits by Filter, but Reserve returns TooMany"},
		{"Reserve reads the ledger in the View", one{reserve: func(ask policy.ReserveRequest, _ *policy.Allocation, v *policy.Verdict) {
			*v = one{}.evaluate(ask.View.Ledger(ask.Ledger.Key()), ask.Pod.UID)
		}}, `after 1 allocations: Reserve chose {Units:[{Unit:one Capacity:1}]`},
		{"Reserve lists the units of the pod only", one{reserve: func(ask policy.ReserveRequest, c *policy.Allocation, v *policy.Verdict) {
			unit := "for " + cmp.Or(ask.Pod.Labels["app"], "none")
			*c, *v = policy.Allocation{Units: []policy.Capacity{{Unit: unit, Capacity: 99}}, Amounts: []policy.Amount{{Unit: unit, Amount: 1}}}, policy.Verdict{}
		}, unlimited: true}, `then pod "default/other": Reserve changes the capacity of unit "for web", which has allocations, from 99 to 0`},
		{"Reserve counts its calls", one{reserve: func(_ policy.ReserveRequest, c *policy.Allocation, _ *policy.Verdict) {
			calls++
			c.Annotations = map[string]string{"example.com/call": strconv.Itoa(calls)}
		}}, "for the same request"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			errs := policytest.Check(options(func() (policy.Policy, error) { return tt.policy, nil }))
			if tt.says == "" && len(errs) == 0 {
				return
			}
			if rules := broken(errs); !slices.Equal(rules, []string{"allocations"}) || !strings.Contains(errors.Join(errs...).Error(), tt.says) {
				t.Errorf("broken %v: %v, want %q", rules, errors.Join(errs...), tt.says)
			}
		})
	}
}
