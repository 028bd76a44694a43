package engine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outboard.dev/outboard/internal/engine"
)

func TestShortlist(t *testing.T) {
	view := viewOf("a s=5 fit=1", "b s=9 fit=1", "c s=5 fit=1", "d s=100", "e s=1 fit=1", "f s=9 fit=1")
	members := []engine.WeightedPolicy{
		{Name: "Fit", Policy: &fake{filter: atLeast("fit", 1, tooFew)}},
		{Name: "S", Policy: &fake{score: scoreBy("s")}, Weight: 2},
	}
	tests := []struct {
		name  string
		k     int
		asked string
		kept  string
		top   string // of the record: all scored nodes, best first
	}{
		{"none: all that fit", 0, "a b c d e f", "a b c e f", ""},
		{"the best", 1, "a b c d e", "b", "b a c e"},
		{"in the order asked, not that of totals", 3, "e a b f d", "a b f", "b f a e"},
		{"of a tie, the one asked first", 1, "f d b a", "f", "f b a"},
		{"of another tie too", 3, "e c b a f", "c b f", "b f c a e"},
		{"as many as fit: nothing to choose", 5, "a b c d e f", "a b c e f", ""},
		{"more than fit", 6, "a b c d e f", "a b c e f", ""},
		{"one less than fit", 4, "a b c d e f", "a b c f", "b f a c e"},
		{"none fits", 2, "d", "", ""},
		{"unknown nodes are no part of it", 1, "x e a", "a", "a e"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := asking(podOf("u", "1"), view, strings.Fields(tt.asked)...)
			var result engine.Result
			if err := newShortEngine(t, tt.k, members...).Filter(t.Context(), req, &result); err != nil {
				t.Fatal(err)
			}
			if got := kept(req, &result); got != tt.kept {
				t.Errorf("kept %q, want %q", got, tt.kept)
			}
			var top []string
			for _, n := range result.Record.Top {
				top = append(top, n.Node)
			}
			if got := strings.Join(top, " "); got != tt.top {
				t.Errorf("top %q, want %q", got, tt.top)
			}
			fit := 0
			for _, n := range req.Nodes {
				if n != nil && number(n, "fit") == 1 {
					fit++
				}
			}
			if r := result.Record; r.Fit != fit || r.Returned != len(result.Kept) {
				t.Errorf("the record has %d fit and %d returned, want %d and %d", r.Fit, r.Returned, fit, len(result.Kept))
			}
		})
	}
}

// Without a policy that scores, all nodes are equal, and the record has no ranking.
func TestShortlistWithoutScore(t *testing.T) {
	req := asking(podOf("u", "1"), viewOf("a", "b", "c"), "c", "a", "b")
	var result engine.Result
	if err := newShortEngine(t, 2, engine.WeightedPolicy{Name: "Fit", Policy: &fake{filter: whole}}).Filter(t.Context(), req, &result); err != nil {
		t.Fatal(err)
	}
	if got, want := kept(req, &result), "c a"; got != want {
		t.Errorf("kept %q, want %q", got, want)
	}
	if result.Record.Top != nil {
		t.Errorf("got top %v", result.Record.Top)
	}
}

// Whether or not the engine still has the shortlist, the prioritize call that follows returns the
// totals by which the nodes were selected.
func TestShortlistThenScore(t *testing.T) {
	view := viewOf("a s=5", "b s=9", "c s=7", "d s=1")
	members := []engine.WeightedPolicy{{Name: "S", Policy: &fake{score: scoreBy("s")}, Weight: 2}}
	shortlisting := newShortEngine(t, 2, members...)
	pod := podOf("u", "1")
	req := asking(pod, view, "a", "b", "c", "d")
	var filtered engine.Result
	if err := shortlisting.Filter(t.Context(), req, &filtered); err != nil {
		t.Fatal(err)
	}
	short := asking(pod, view, strings.Fields(kept(req, &filtered))...)
	totals := map[string]int64{}
	for _, n := range filtered.Record.Top {
		totals[n.Node] = n.Total
	}
	for name, e := range map[string]*engine.Engine{"the same engine": shortlisting, "another replica": newShortEngine(t, 2, members...)} {
		var scored engine.Result
		if err := e.Score(t.Context(), short, &scored); err != nil {
			t.Fatal(err)
		}
		for i, n := range short.Nodes {
			if scored.Totals[i] != totals[n.Name] {
				t.Errorf("%s: the total of %s is %d, but %d for the shortlist", name, n.Name, scored.Totals[i], totals[n.Name])
			}
		}
	}
}

// Scores are normalized among the nodes of the call: all nodes that fit for the shortlist, and the
// nodes on it for prioritize. No replica has more information.
func TestShortlistNormalized(t *testing.T) {
	view := viewOf("a s=50", "b s=200", "c s=1 broken=1", "d s=100", "e s=400 broken=1")
	p := &fake{filter: whole, score: scoreBy("s"), normalize: toLargest}
	e := newShortEngine(t, 2, engine.WeightedPolicy{Name: "S", Policy: p, Weight: 1})
	pod := podOf("u", "1")
	req := asking(pod, view, "a", "b", "c", "d", "e")
	var result engine.Result
	if err := e.Filter(t.Context(), req, &result); err != nil {
		t.Fatal(err)
	}
	if got, want := kept(req, &result), "b d"; got != want {
		t.Errorf("kept %q, want %q", got, want)
	}
	if got, want := result.Record.Top[0].Scores[0].Score, int64(100); got != want {
		t.Errorf("the best node that fits has %d, want %d: nodes that do not fit do not count", got, want)
	}
	if err := e.Score(t.Context(), asking(pod, view, "d", "a"), &result); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{100, 50}, result.Totals); diff != "" {
		t.Errorf("totals of the two nodes (-want +got):\n%s", diff)
	}
}
