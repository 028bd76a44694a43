package engine_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/engine"
)

func TestLevels(t *testing.T) {
	tests := []struct {
		name     string
		maxTotal int64
		totals   []int64
		levels   []int64
	}{
		{"the whole range", 100, []int64{0, 9, 10, 19, 55, 90, 99, 100}, []int64{0, 0, 1, 1, 5, 9, 9, 10}},
		{"the best moves up from those it would share its level with", 100, []int64{81, 88, 85, 30}, []int64{8, 9, 8, 3}},
		{"at the bottom too", 700, []int64{0, 1, 0}, []int64{0, 1, 0}},
		{"from the level below the highest", 100, []int64{99, 98, 97}, []int64{10, 9, 9}},
		{"only all of the total is the highest level, so it is never shared", 100, []int64{100, 99}, []int64{10, 9}},
		{"those that tie for the best stay together", 100, []int64{88, 81, 88}, []int64{9, 8, 9}},
		{"all tie", 100, []int64{37, 37, 37}, []int64{3, 3, 3}},
		{"all tie at the top", 100, []int64{100, 100}, []int64{10, 10}},
		{"the best is alone without moving", 100, []int64{42, 39}, []int64{4, 3}},
		{"a single node", 250, []int64{249}, []int64{9}},
		{"nothing scored", 100, []int64{0, 0}, []int64{0, 0}},
		{"no policy scores", 0, []int64{0, 0}, []int64{0, 0}},
		{"no policy scores, and yet there are totals", 0, []int64{5, 3}, []int64{0, 0}},
		{"no node", 100, []int64{}, []int64{}},
		{"a small range spreads", 2, []int64{0, 1, 2}, []int64{0, 5, 10}},
		{"out of range counts as the nearest in range", 100, []int64{-7, 120, 300, 0, 50}, []int64{0, 10, 10, 0, 5}},
		{"negative totals beside a small one", 1000, []int64{-5, 1}, []int64{0, 1}},
		{"numbers without room to multiply", 1000, []int64{math.MaxInt64, math.MinInt64, 999}, []int64{10, 0, 9}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := slices.Clone(tt.totals)
			engine.ScaleScores(got, tt.maxTotal, engine.MaxExtenderScore)
			if diff := cmp.Diff(tt.levels, got); diff != "" {
				t.Errorf("levels of %v in 0..%d (-want +got):\n%s", tt.totals, tt.maxTotal, diff)
			}
		})
	}
}

// ScaleScores keeps each promise of the package documentation.
func TestLevelsKeepTheBestApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxTotal := rapid.OneOf(rapid.Int64Range(1, 30), rapid.Int64Range(1, 1000*100*100)).Draw(t, "maxTotal")
		// Rounding errors matter for totals close together.
		base := rapid.Int64Range(0, maxTotal).Draw(t, "base")
		total := rapid.OneOf(
			rapid.Int64Range(0, maxTotal),
			rapid.Int64Range(max(0, base-maxTotal/20-1), min(maxTotal, base+maxTotal/20+1)),
		)
		totals := rapid.SliceOfN(total, 1, 20).Draw(t, "totals")
		levels := slices.Clone(totals)
		engine.ScaleScores(levels, maxTotal, engine.MaxExtenderScore)

		best := slices.Max(totals)
		for i := range totals {
			plain := totals[i] * engine.MaxExtenderScore / maxTotal
			if levels[i] < 0 || levels[i] > engine.MaxExtenderScore {
				t.Fatalf("level %d is out of range", levels[i])
			}
			if totals[i] != best && levels[i] != plain {
				t.Fatalf("%d, which is not the best, is on level %d and not %d", totals[i], levels[i], plain)
			}
			if totals[i] == best && levels[i] != plain {
				shared := slices.ContainsFunc(totals, func(other int64) bool {
					return other < best && other*engine.MaxExtenderScore/maxTotal == plain
				})
				if !shared || levels[i] != plain+1 {
					t.Fatalf("the best, %d, is on level %d and not %d; shared: %t", best, levels[i], plain, shared)
				}
			}
			for j := range totals {
				if totals[i] > totals[j] && levels[i] < levels[j] {
					t.Fatalf("%d is better than %d and on the lower level: %d, %d", totals[i], totals[j], levels[i], levels[j])
				}
				if totals[i] == totals[j] && levels[i] != levels[j] {
					t.Fatalf("%d is on two levels: %d, %d", totals[i], levels[i], levels[j])
				}
				if totals[i] == best && totals[j] < best && levels[i] == levels[j] {
					t.Fatalf("the best, %d, shares level %d with %d", best, levels[i], totals[j])
				}
			}
		}
	})
}
