package replicas_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/pending"
	"outboard.dev/outboard/internal/replicas"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func at(minutes int) *decision.Record {
	return &decision.Record{Time: noon.Add(time.Duration(minutes) * time.Minute), Generation: uint64(minutes)}
}

func TestDecisions(t *testing.T) {
	responses := func() []replicas.Response[[]*decision.Record] {
		return []replicas.Response[[]*decision.Record]{
			{Replica: "a", Value: []*decision.Record{at(3), at(1)}},
			{Replica: "b"},
			{Replica: "c", Value: []*decision.Record{at(4), at(2)}},
		}
	}
	for limit, want := range map[int][]string{9: {"4 c", "3 a", "2 c", "1 a"}, 2: {"4 c", "3 a"}, 0: nil} {
		var got []string
		for _, d := range replicas.Decisions(responses(), limit) {
			got = append(got, string(rune('0'+d.Generation))+" "+d.Replica)
		}
		if !slices.Equal(got, want) {
			t.Errorf("at most %d: got %q, want %q", limit, got, want)
		}
	}
}

// The explanation has what any replica knows of the pod.
func TestExplanation(t *testing.T) {
	rejected := func(minutes, requeues int) *pending.Reason {
		at := noon.Add(time.Duration(minutes) * time.Minute)
		return &pending.Reason{Code: "P.C", Profile: "/", Since: at, LastCall: at, Requeues: requeues, LastRequeued: at}
	}
	for name, tt := range map[string]struct {
		a, b, want explain.Document
	}{
		"the one that has seen the pod bound": {
			explain.Document{Known: true, Reason: rejected(1, 1)},
			explain.Document{Known: true, Node: "n"},
			explain.Document{Known: true, Node: "n"},
		},
		"the one that may have lost its record": {
			explain.Document{Known: true, Node: "n", Uncalled: "bound by s without a call"},
			explain.Document{Known: true, Node: "n"},
			explain.Document{Known: true, Node: "n"},
		},
		"the one that has seen the pod": {
			explain.Document{Decisions: []*decision.Record{at(1)}},
			explain.Document{Known: true, Annotation: "why"},
			explain.Document{Known: true, Annotation: "why", Decisions: []*decision.Record{at(1)}},
		},
		"the one that has seen the node": {
			explain.Document{Known: true, Error: "no such node"},
			explain.Document{Known: true},
			explain.Document{Known: true},
		},
		"rejected by both": {
			explain.Document{Known: true, Reason: rejected(3, 2)},
			explain.Document{Known: true, Reason: rejected(5, 1)},
			explain.Document{Known: true, Reason: &pending.Reason{Code: "P.C", Profile: "/", Since: noon.Add(3 * time.Minute),
				LastCall: noon.Add(5 * time.Minute), Requeues: 3, LastRequeued: noon.Add(5 * time.Minute)}},
		},
		"rejected by one": {
			explain.Document{Known: true, Reason: &pending.Reason{Code: pending.Other}},
			explain.Document{Known: true, Reason: rejected(3, 1)},
			explain.Document{Known: true, Reason: rejected(3, 1)},
		},
	} {
		got := replicas.Explanation([]replicas.Response[*explain.Document]{{Replica: "a", Value: &tt.a}, {Replica: "b", Value: &tt.b}}, 6)
		tt.want.Replicas = []string{"a", "b"}
		for _, d := range tt.want.Decisions {
			d.Replica = "a"
		}
		if tt.want.Decisions == nil {
			tt.want.Decisions = []*decision.Record{}
		}
		if diff := cmp.Diff(&tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
