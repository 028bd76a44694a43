package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// A node about which a policy has no opinion gets the mean of the others' normalized scores, unless
// NormalizeScore sets its score.
func TestNoOpinion(t *testing.T) {
	leaving := func(scores []int64) { // the others in tens of the largest
		largest := max(1, slices.Max(scores))
		for i, s := range scores {
			if s != policy.NoOpinion {
				scores[i] = 10 * s / largest
			}
		}
	}
	deciding := func(scores []int64) {
		for i := range scores {
			scores[i] = max(scores[i], 3)
		}
	}
	view := viewOf("none s=-1", "nothing s=-1", "a s=90", "b s=85", "zero s=0", "large s=600")
	for _, tt := range []struct {
		asked     string
		normalize func([]int64)
		totals    []int64
	}{
		{"none", nil, []int64{50}},
		{"none nothing", nil, []int64{50, 50}},
		{"a none b", nil, []int64{90, 87, 85}},
		{"zero none unknown", nil, []int64{0, 0, 0}},
		{"none unknown a", nil, []int64{90, 0, 90}},
		{"none zero large", leaving, []int64{5, 0, 10}},
		{"none", leaving, []int64{50}},
		{"none zero a", deciding, []int64{3, 3, 90}},
	} {
		e := newEngine(t, engine.WeightedPolicy{Name: "S", Policy: &fake{score: scoreBy("s"), normalize: tt.normalize}, Weight: 1})
		var result engine.Result
		if err := e.Score(t.Context(), asking(podOf("u", "1"), view, strings.Fields(tt.asked)...), &result); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.totals, result.Totals); diff != "" {
			t.Errorf("%s: totals (-want +got):\n%s", tt.asked, diff)
		}
	}
}

// A score outside 0..100 is an error of the policy, unless NormalizeScore maps it into the range.
func TestScoreOutOfRange(t *testing.T) {
	view := viewOf("a s=7", "b s=-2", "c s=101", "d s=100", "e s=0")
	clamp := func(scores []int64) {
		for i := range scores {
			scores[i] = min(max(scores[i], 0), 100)
		}
	}
	tests := []struct {
		name      string
		asked     string
		normalize func([]int64)
		want      string // the error; "": no error
	}{
		{"in range", "a d e", nil, ""},
		{"negative", "a b c", nil, `policy Odd: score -2 for node "b": must be between 0 and 100`},
		{"too large", "x a c b", nil, `policy Odd: score 101 for node "c": must be between 0 and 100`},
		{"brought into range", "a b c", clamp, ""},
		{"brought to what means no opinion", "a d", func(scores []int64) { scores[1] = policy.NoOpinion }, `policy Odd: score -1 for node "d": must be between 0 and 100`},
		{"brought out of range", "d", func(scores []int64) { scores[0] = 1 << 40 }, `policy Odd: score 1099511627776 for node "d": must be between 0 and 100`},
	}
	for _, tt := range tests {
		for _, shortlist := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s/shortlist %d", tt.name, shortlist), func(t *testing.T) {
				e := newShortEngine(t, shortlist,
					engine.WeightedPolicy{Name: "Even", Policy: &fake{score: func(*snapshot.Node) int64 { return 50 }}, Weight: 1},
					engine.WeightedPolicy{Name: "Odd", Policy: &fake{score: scoreBy("s"), normalize: tt.normalize}, Weight: 1},
				)
				req := asking(podOf("u", "1"), view, strings.Fields(tt.asked)...)
				var result engine.Result
				err := e.Score(t.Context(), req, &result)
				if got := fmt.Sprint(err); tt.want == "" && err != nil || tt.want != "" && got != tt.want {
					t.Fatalf("got error %q, want %q", got, tt.want)
				}
				if tt.want == "" {
					return
				}
				if result.Record.Error != tt.want || len(result.Totals) > 0 {
					t.Errorf("the record's error is %q and the totals %v; want the same error and none", result.Record.Error, result.Totals)
				}
				if failure := new(engine.PolicyError); !errors.As(err, &failure) || failure.Policy != "Odd" || failure.Stack != nil {
					t.Errorf("got error %#v, want a PolicyError of Odd without stack", err)
				}
			})
		}
	}
}
