package strategy

import (
	"slices"
	"testing"
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
	if allocs := testing.AllocsPerRun(10, func() { r.NormalizeScore(many) }); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}
