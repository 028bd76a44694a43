package policytest_test

import (
	"errors"
	"slices"
	"testing"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// A policy may allocate as often as Options.Allocates permits, and no more.
func TestAllocates(t *testing.T) {
	var sinks [2]*int64
	build := func() (policy.Policy, error) {
		return cycleOf(scoreFunc(func(n *snapshot.Node) int64 {
			own := [2]*int64{new(int64), new(int64)}
			if n == nil {
				sinks = own // never runs, but the compiler cannot know that
			}
			return min(int64(len(n.Pods)), 50) + *own[0] + *own[1]
		})), nil
	}
	for name, tc := range map[string]struct {
		allowed policytest.Allocates
		broken  []string
	}{
		"nothing":    {policytest.Allocates{}, []string{"allocations"}},
		"too little": {policytest.Allocates{AtMost: 1, Why: "a test"}, []string{"allocations"}},
		"enough":     {policytest.Allocates{AtMost: 2, Why: "a test"}, nil},
		"no reason":  {policytest.Allocates{AtMost: 2}, []string{"exercised"}},
		"negative":   {policytest.Allocates{AtMost: -1, Why: "a test"}, []string{"allocations", "exercised"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(build)
			o.Allocates = tc.allowed
			errs := policytest.Check(o)
			rules := broken(errs)
			if slices.Sort(rules); !slices.Equal(slices.Compact(rules), tc.broken) {
				t.Errorf("broke %q, want %q: %v", rules, tc.broken, errors.Join(errs...))
			}
		})
	}
	_ = sinks
}
