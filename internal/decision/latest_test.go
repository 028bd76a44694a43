package decision_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/decision"
)

// Latest returns what the log still has, latest first.
func TestLatest(t *testing.T) {
	for _, tt := range []struct {
		added    string // the names of pods
		size     int
		limit    int
		selected string
		want     string
	}{
		{"", 3, 9, "abcde", ""},
		{"abc", 5, 9, "abcde", "cba"},
		{"abc", 5, 2, "abcde", "cb"},
		{"abcde", 3, 9, "abcde", "edc"},
		{"abcde", 3, 9, "ac", "c"},
		{"abc", 5, 0, "abcde", ""},
	} {
		log := decision.NewLog(tt.size)
		for _, name := range strings.Split(tt.added, "") {
			log.Add(&decision.Record{Pod: decision.Pod{Name: name}}, nil)
		}
		var got []string
		for _, r := range log.Latest(tt.limit, func(r *decision.Record) bool { return strings.Contains(tt.selected, r.Pod.Name) }) {
			got = append(got, r.Pod.Name)
		}
		if want := strings.Split(tt.want, ""); !slices.Equal(got, want) {
			t.Errorf("%+v: got %q", tt, got)
		}
	}
}

func TestList(t *testing.T) {
	scored := decision.ScoredNode{Node: "n1", Total: 200, Scores: []decision.Score{{Policy: "Cost", Score: 100, Weight: 2}}}
	var out strings.Builder
	err := decision.List(&out, []*decision.Record{
		{Verb: decision.Bind, Pod: decision.Pod{Namespace: "ns", Name: "a"}, Profile: "/", Bound: "n1", Replica: "outboard-1", Allocations: []decision.Allocation{{"licenses/a", "pool", 1}, {"gpu-mem", "0", 24}, {"gpu-mem", "1", 6}}, Summary: "1 of 3 nodes fit"},
		{Verb: decision.Bind, Pod: decision.Pod{Namespace: "ns", Name: "a"}, Profile: "/", Bound: "n1"},
		{Verb: decision.Filter, Pod: decision.Pod{Namespace: "ns", Name: "b"}, Profile: "/gpu", Nodes: 3, Fit: 1, Returned: 1, Rejections: []decision.Rejection{{Text: "too full", Nodes: 2}}},
		{Verb: decision.Filter, Pod: decision.Pod{Namespace: "ns", Name: "c"}, Profile: "/", Error: "no\nview"},
		{Verb: decision.Prioritize, Pod: decision.Pod{Namespace: "ns", Name: "d"}, Profile: "/", Nodes: 2, Ties: 1, MaxTotal: 300, Top: []decision.ScoredNode{scored}},
		{Verb: decision.Prioritize, Pod: decision.Pod{Namespace: "ns", Name: "e"}, Profile: "/", Nodes: 2, Ties: 1, MaxTotal: 300, Top: []decision.ScoredNode{scored}, Chosen: &decision.ChosenNode{ScoredNode: scored, Equal: 1}},
		{Verb: decision.Prioritize, Pod: decision.Pod{Namespace: "ns", Name: "f"}, Profile: "/", Nodes: 2},
	})
	const want = `
TIME                  POD   VERB    DECISION            PROFILE  REPLICA     WHY
0001-01-01T00:00:00Z  ns/a  bind    bound to n1         /        outboard-1  allocated 1 of licenses/a, unit pool and 24 of gpu-mem, unit 0 and 6 of gpu-mem, unit 1; 1 of 3 nodes fit
0001-01-01T00:00:00Z  ns/a  bind    bound to n1         /        –
0001-01-01T00:00:00Z  ns/b  filter  1 of 3 nodes fit    /gpu     –           2 too full
0001-01-01T00:00:00Z  ns/c  filter  failed              /        –           no; view
0001-01-01T00:00:00Z  ns/d  prioritize  2 nodes scored  /        –           the best 1 node scored 200 of 300
0001-01-01T00:00:00Z  ns/e  prioritize  2 nodes scored  /        –           n1 scored 200 of 300 (Cost 100×2), as much as 1 other node
0001-01-01T00:00:00Z  ns/f  prioritize  2 nodes scored  /        –
`
	got := "\n"
	for line := range strings.Lines(out.String()) {
		got += strings.TrimRight(line, " \n") + "\n"
	}
	if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") || err != nil {
		t.Errorf("%v, got%s\nwant%s", err, got, want)
	}
}

// The JSON of a record has what the list says, and of rejected nodes the nearest one.
func TestWordsInJSON(t *testing.T) {
	for want, r := range map[string]decision.Record{
		`"outcome":"1 of 3 nodes fit","why":["2 too full; the nearest, n1, has 40, needs 60 GiB","1 other"]`: {Verb: decision.Filter, Nodes: 3, Fit: 1, Returned: 1, Rejections: []decision.Rejection{
			{Text: "too full", Unit: "GiB", Nodes: 2, Nearest: []decision.Miss{{Node: "n1", Have: 40, Want: 60}}}, {Text: "other", Nodes: 1},
		}},
		`"outcome":"1 of 1 node fit","why":["ResourceClaims not known to Outboard yet: gpu (no score counts them)"]`: {Verb: decision.Filter, Nodes: 1, Fit: 1, Returned: 1, UnknownClaims: []string{"gpu"}},
		`"outcome":"failed","why":["no view"]`: {Verb: decision.Filter, Error: "no view", Rejections: []decision.Rejection{{Unit: "GiB", Nearest: []decision.Miss{{Node: "n1"}}}}},
		`"outcome":"1 of 2 candidate nodes kept","why":["a: dropped: its budget is spent","b: 1 victim proposed, none added"]`: {Verb: decision.Preempt, Preemptions: []decision.Preemption{{Node: "a", Dropped: "its budget is spent"}, {Node: "b", Given: 1}}},
		`"outcome":"not managed: all nodes fit"`: {Verb: decision.Filter, Unmanaged: true, Nodes: 2, Fit: 2, Returned: 2},
	} {
		if got, err := json.Marshal(&r); err != nil || !strings.HasSuffix(string(got), want+"}") {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
