package strategy

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"outboard.dev/outboard/policy"
)

func TestNormalizedRanks(t *testing.T) {
	var r Ranking
	scores := []int64{-5, -3, -900, -5, 1 << 62, -3}
	r.NormalizeScore(scores)
	if !slices.Equal(scores, []int64{98, 99, 97, 98, 100, 99}) {
		t.Errorf("%v", scores)
	}
	many := make([]int64, 250)
	for i := range many {
		many[i] = int64(i * 7 % 250)
	}
	r.NormalizeScore(many)
	for i, s := range many {
		if want := max(0, 100-(249-int64(i*7%250))); s != want {
			t.Errorf("%d from the top: %d, want %d", 249-i*7%250, s, want)
		}
	}
	if allocs := testing.AllocsPerRun(100, func() { r.NormalizeScore(many) }); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// A score is 100 less the number of different scores that are better, and not less than 0.
// NoOpinion stays.
func TestNormalizedScores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scores := rapid.SliceOfN(rapid.Int64Range(-150, 150), 0, 400).Draw(t, "scores")
		different := slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(scores))), func(s int64) bool { return s == policy.NoOpinion })
		got := slices.Clone(scores)
		new(Ranking).NormalizeScore(got)
		for i, s := range scores {
			at, known := slices.BinarySearch(different, s)
			want := max(0, 100-int64(len(different)-1-at))
			if !known {
				want = policy.NoOpinion
			}
			if got[i] != want {
				t.Errorf("%d of %v: %d, want %d", s, different, got[i], want)
			}
		}
	})
}

func BenchmarkNormalizeScore(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	costs := make([]int64, 5000)
	for i := range costs {
		costs[i] = -r.Int64N(2e8)
	}
	scores := make([]int64, len(costs))
	for b.Loop() {
		copy(scores, costs)
		new(Ranking).NormalizeScore(scores)
	}
}
