package policy_test

import (
	"slices"
	"testing"

	"outboard.dev/outboard/policy"
)

func TestNeutralScores(t *testing.T) {
	const none = policy.NoOpinion
	for _, tt := range []struct{ scores, want []int64 }{
		{[]int64{none}, []int64{50}},
		{[]int64{none, none}, []int64{50, 50}},
		{[]int64{0, 100, none}, []int64{0, 100, 50}},
		{[]int64{90, none, 85}, []int64{90, 87, 85}},
		{[]int64{3}, []int64{3}},
	} {
		got := slices.Clone(tt.scores)
		if policy.NeutralScores(got); !slices.Equal(got, tt.want) {
			t.Errorf("%v become %v, want %v", tt.scores, got, tt.want)
		}
	}
}
