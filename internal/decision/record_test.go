package decision_test

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"outboard.dev/outboard/internal/decision"
)

var update = flag.Bool("update", false, "write the golden files anew")

var (
	arrived  = time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)
	web      = decision.Pod{Namespace: "shop", Name: "web-7f", UID: "0b1d"}
	policies = []decision.Policy{{Name: "GPUMemory", Weight: 5}, {Name: "Utilization", Weight: 2}}
	scored   = []decision.ScoredNode{
		{Node: "node-a", Total: 640, Scores: []decision.Score{
			{Policy: "GPUMemory", Score: 100, Weight: 5}, {Policy: "Utilization", Score: 70, Weight: 2},
		}},
		{Node: "node-with-a-long-name", Total: 7, Scores: []decision.Score{
			{Policy: "GPUMemory", Score: 1, Weight: 5}, {Policy: "Utilization", Score: 1, Weight: 2},
		}},
	}
)

// TestText compares the text of each record with testdata/NAME.txt.
func TestText(t *testing.T) {
	records := map[string]*decision.Record{
		"empty": {},
		"filter-all-fit": {
			Verb: "filter", Profile: "/", Time: arrived, Duration: 412_345 * time.Nanosecond, Pod: web, Generation: 17,
			Nodes: 3, Fit: 3, Returned: 3, Policies: policies, MaxTotal: 700,
		},
		"filter-rejections": {
			Verb: "filter", Profile: "/", Time: arrived, Duration: 2 * time.Millisecond, Pod: web, Generation: 17,
			Nodes: 30, Fit: 0, Returned: 0, MaxTotal: 700,
			Policies: []decision.Policy{
				{Name: "GPUMemory", Weight: 5},
				{Name: "Utilization", Weight: 2, IgnoredError: "policy Utilization: panic: boom"},
				{Name: "License", Skipped: true},
			},
			Rejections: []decision.Rejection{
				{Policy: "GPUMemory", Code: "NoSingleGPU", Text: "no single GPU has enough free memory", Unit: "MiB", Nodes: 20, Nearest: []decision.Miss{
					{Node: "node-a", Have: 7000, Want: 8192}, {Node: "node-b", Have: 512, Want: 8192}, {Node: "node-c", Have: 0, Want: 8192},
				}},
				{Policy: "GPUMemory", Code: "NoGPU", Text: "the node has no GPU", Unresolvable: true, Nodes: 9, Nearest: []decision.Miss{{Node: "node-x"}, {Node: "node-y"}}},
				{Code: "NodeUnknown", Text: "node is not known to Outboard yet", Nodes: 1},
			},
		},
		"filter-shortlist": {
			Verb: "filter", Profile: "/gpu", Time: arrived, Duration: time.Millisecond, Pod: web, Generation: 18,
			Nodes: 500, Fit: 499, Returned: 2, Policies: policies, MaxTotal: 700, Top: scored,
			Rejections: []decision.Rejection{{Policy: "GPUMemory", Code: "NoGPU", Text: "the node has no GPU", Nodes: 1}},
		},
		"prioritize": {
			Verb: "prioritize", Profile: "/", Time: arrived, Duration: 99 * time.Microsecond, Pod: web, Generation: 17,
			Nodes: 2, Fit: 2, Returned: 2, Policies: policies, MaxTotal: 700, Top: scored,
		},
		"prioritize-chosen": {
			Verb: "prioritize", Profile: "/", Time: arrived, Pod: web, Nodes: 2, Fit: 2, Returned: 2, MaxTotal: 700, Top: scored, Ties: 1,
			Chosen: &decision.ChosenNode{ScoredNode: scored[1], Better: 1},
		},
		"prioritize-tied": {
			Verb: "prioritize", Profile: "/", Time: arrived, Pod: web, Nodes: 63, Fit: 63, Returned: 63, MaxTotal: 700, Top: scored[:1], Ties: 60,
			Chosen: &decision.ChosenNode{ScoredNode: decision.ScoredNode{Node: "node-z", Total: 640, Scores: scored[0].Scores}, Equal: 59},
		},
		"prioritize-chosen-outside": {
			Verb: "prioritize", Profile: "/", Time: arrived, Pod: web, Nodes: 63, Fit: 63, Returned: 63, MaxTotal: 700, Top: scored[:1], Ties: 1,
			Chosen: &decision.ChosenNode{ScoredNode: scored[1], Better: 40, Equal: 22},
		},
		"prioritize-wide": {
			Verb: "prioritize", Profile: "/", Time: arrived, Pod: web, Nodes: 1, Fit: 1, Returned: 1, MaxTotal: 100, Ties: 1,
			Top: []decision.ScoredNode{{Node: "node-a", Total: 5, Scores: []decision.Score{{Policy: strings.Repeat("Policy", 15), Score: 5, Weight: 1}}}},
		},
		"prioritize-unknown-claims": {
			Verb: "prioritize", Profile: "/", Time: arrived, Pod: web, Nodes: 1, Fit: 1, Returned: 1, Policies: policies, MaxTotal: 700, UnknownClaims: []string{"own", "b\na"},
		},
		"prioritize-one": {
			Verb: "prioritize", Profile: "/", Time: arrived, Pod: web, Nodes: 1, Fit: 1, Returned: 1, Policies: policies, MaxTotal: 700,
		},
		"preempt": {
			Verb: "preempt", Profile: "/", Time: arrived, Duration: time.Millisecond, Pod: web, Generation: 17, Policies: policies,
			Preemptions: []decision.Preemption{
				{Node: "node-a", Given: 2},
				{Node: "node-b", Given: 1, Added: []string{"shop/cache-1", "batch/train-9"}},
				{Node: "node-c", Given: 1, Dropped: "does not fit even without all pods of lower priority"},
			},
		},
		"bind": {
			Verb: "bind", Profile: "/", Time: arrived, Duration: 5 * time.Millisecond, Pod: web, Generation: 17, Bound: "node-a",
		},
		"bind-failed": {
			Verb: "bind", Profile: "/", Time: arrived, Duration: 5 * time.Millisecond, Pod: web, Generation: 17, Bound: "node-a",
			Error: "node node-a: no device has enough left (policy GPUMemory)\npolicy License: releasing: no answer",
		},
		"failed": {
			Verb: "filter", Profile: "/", Time: arrived, Duration: time.Millisecond, Pod: web, Generation: 17, Nodes: 1, Policies: policies,
			Error: `policy GPUMemory: annotation "x": "ten" is not a number`,
		},
		"allocated": {
			Verb: "prioritize", Profile: "/", Time: arrived, Duration: time.Millisecond, Pod: web, Generation: 17, Nodes: 2, Fit: 2, Returned: 2,
			MaxTotal: 100, Top: []decision.ScoredNode{
				{Node: "node-a", Total: 100, HoldsAllocation: true, Scores: []decision.Score{{Policy: "P", Score: 5, Weight: 1}}},
				{Node: "node-b", Total: 70, Scores: []decision.Score{{Policy: "P", Score: 70, Weight: 1}}},
			},
		},
		// Without a cluster, names and errors can contain any text of a caller.
		"hostile": {
			Verb: "bind", Profile: "/", Time: arrived, Pod: web, Bound: "node\x1b[2J", Error: "no such node: \"a\tb\"\nsecond line",
			Policies: []decision.Policy{{Name: "P", IgnoredError: "policy P: \x00"}},
			Rejections: []decision.Rejection{
				{Policy: "P", Text: "too little", Unit: "MiB", Nodes: 1, Nearest: []decision.Miss{{Node: "a\nb", Have: 1, Want: 2}}},
				{Policy: "P", Text: "broken", Nodes: 1, Nearest: []decision.Miss{{Node: "\u202eedon"}}},
			},
			MaxTotal: 100, Top: []decision.ScoredNode{{Node: "tab\tbed", Total: 5, Scores: []decision.Score{{Policy: "P", Score: 5, Weight: 1}}}},
			Preemptions: []decision.Preemption{{Node: "\r", Added: []string{"a/\x07"}}, {Node: "\r", Dropped: "no"}, {Node: "\r"}},
		},
	}
	for name, record := range records {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := record.Text(&b); err != nil {
				t.Fatal(err)
			}
			file := "testdata/" + name + ".txt"
			if *update {
				if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
			for i, line := range strings.Split(b.String(), "\n") {
				if strings.TrimRight(line, " ") != line {
					t.Errorf("line %d ends in spaces: %q", i+1, line)
				}
			}
		})
	}
}

// The size of a record in a log is bounded.
func TestBounded(t *testing.T) {
	long := strings.Repeat("é", 10_000)
	r := decision.Record{Verb: "preempt", Error: long, Policies: []decision.Policy{{Name: "A", IgnoredError: long}}}
	for range 1000 {
		r.Rejections = append(r.Rejections, decision.Rejection{Text: long})
		r.Preemptions = append(r.Preemptions, decision.Preemption{Node: "n", Added: make([]string, 1000)})
		r.UnknownClaims = append(r.UnknownClaims, long)
	}
	log := decision.NewLog(1)
	log.Add(&r, nil)
	b := log.Find(decision.Query{Limit: 1})[0]
	if len(b.Rejections) != 100 || len(b.Preemptions) != 100 || b.PreemptionsLeftOut != 900 || len(b.Preemptions[0].Added) != 21 || len(b.UnknownClaims) != 20 {
		t.Errorf("%d rejections, %d candidates with %d pods, %d left out, %d unknown claims", len(b.Rejections), len(b.Preemptions), len(b.Preemptions[0].Added), b.PreemptionsLeftOut, len(b.UnknownClaims))
	}
	for _, text := range []string{b.Error, b.Policies[0].IgnoredError, b.Rejections[0].Text, b.UnknownClaims[0]} {
		if len(text) > 1030 || !utf8.ValidString(text) || !strings.HasPrefix(text, "éé") {
			t.Errorf("the text has %d bytes", len(text))
		}
	}
	b.Error = ""
	var text strings.Builder
	if err := b.Text(&text); err != nil || !strings.Contains(text.String(), "100 of 100 listed candidate nodes kept") || !strings.HasSuffix(text.String(), "    and 900 more candidate nodes\n") {
		t.Errorf("%v: %.200s", err, text.String())
	}
}
