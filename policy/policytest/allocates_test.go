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
		allowed int
		broken  []string
	}{
		"nothing":    {0, []string{"allocations"}},
		"too little": {1, []string{"allocations"}},
		"enough":     {2, nil},
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
