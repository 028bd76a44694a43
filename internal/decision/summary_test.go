package decision_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/decision"
)

func TestSummary(t *testing.T) {
	filter := &decision.Record{Verb: "filter", Nodes: 30, Fit: 1, Rejections: []decision.Rejection{
		{Nodes: 20, Text: "no single GPU has enough free memory"}, {Nodes: 9, Text: "the node has no GPU"},
	}}
	older := &decision.Record{Verb: "filter", Nodes: 1, Fit: 1}
	shortlisted := &decision.Record{Verb: "filter", Nodes: 2, Fit: 2, Returned: 1, MaxTotal: 700, Top: scored}
	prioritize := &decision.Record{Verb: "prioritize", Nodes: 2, MaxTotal: 700, Top: scored}
	allocated := &decision.Record{Verb: "prioritize", MaxTotal: 700, Top: []decision.ScoredNode{
		{Node: "node-a", Total: 700, HoldsAllocation: true, Scores: []decision.Score{{Policy: "GPUMemory", Score: 60, Weight: 5}}},
	}}
	chosen := func(node string, better, equal int) *decision.Record {
		return &decision.Record{Verb: "prioritize", Nodes: 63, MaxTotal: 700, Ties: 1, Top: scored, Chosen: &decision.ChosenNode{
			ScoredNode: decision.ScoredNode{Node: node, Total: 300, Scores: []decision.Score{{Policy: "GPUMemory", Score: 60, Weight: 5}}},
			Better:     better, Equal: equal,
		}}
	}
	tied := &decision.Record{Verb: "prioritize", Nodes: 63, MaxTotal: 400, Ties: 63, Top: []decision.ScoredNode{{Node: "a", Total: 100}, {Node: "b", Total: 100}}}
	unscored := &decision.Record{Verb: "prioritize", Nodes: 2}
	bind := &decision.Record{Verb: "bind", Bound: "node-a"}

	tests := []struct {
		name    string
		records []*decision.Record // latest first
		node    string
		want    string
	}{
		{"nothing is known", nil, "node-a", ""},
		{"nothing about a choice", []*decision.Record{bind}, "node-a", ""},
		{
			"filter alone", []*decision.Record{filter, older}, "node-a",
			"not scored, because only one node is left; 1 of 30 nodes fit; 20 no single GPU has enough free memory; 9 the node has no GPU",
		},
		{"filter alone, and several nodes are left", []*decision.Record{{Verb: "filter", Nodes: 3, Fit: 2}}, "node-a", "2 of 3 nodes fit"},
		{
			"filter and prioritize", []*decision.Record{prioritize, older}, "node-a",
			"scored 640 of 700 (GPUMemory 100×5, Utilization 70×2); 1 of 1 node fit",
		},
		{"a shortlist", []*decision.Record{bind, shortlisted, filter}, "node-with-a-long-name", "scored 7 of 700 (GPUMemory 1×5, Utilization 1×2); 2 of 2 nodes fit"},
		{"a node with an allocation", []*decision.Record{allocated}, "node-a", "scored 700 of 700 (GPUMemory 60×5, holds an allocation of the pod)"},
		{"not among the best", []*decision.Record{chosen("node-z", 12, 0)}, "node-z", "scored 300 of 700 (GPUMemory 60×5), less than 12 other nodes"},
		{"one of many as good", []*decision.Record{chosen("node-z", 0, 62)}, "node-z", "scored 300 of 700 (GPUMemory 60×5), as much as 62 other nodes"},
		{"both", []*decision.Record{chosen("node-z", 1, 1)}, "node-z", "scored 300 of 700 (GPUMemory 60×5), less than 1 other node, as much as 1 other node"},
		{"the best", []*decision.Record{chosen("node-z", 0, 0)}, "node-z", "scored 300 of 700 (GPUMemory 60×5)"},
		{"another was chosen", []*decision.Record{chosen("node-z", 0, 0)}, "node-a", "scored 640 of 700 (GPUMemory 100×5, Utilization 70×2)"},
		{"not known", []*decision.Record{prioritize}, "node-z", "the best 2 nodes scored 640 to 7 of 700"},
		{"not known among ties", []*decision.Record{tied}, "node-z", "the best 63 nodes scored 100 of 400"},
		{"a call that scored nothing tells nothing", []*decision.Record{unscored, prioritize}, "node-a", "scored 640 of 700 (GPUMemory 100×5, Utilization 70×2)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := decision.Summary(tt.records, tt.node); got != tt.want {
				t.Errorf("summary is %q, want %q", got, tt.want)
			}
		})
	}
}

// Why names the profiles if several have decided about the pod, first the one that binds it. A repeated decision counts once.
func TestWhyOfProfiles(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	filtered := func(profile, uid string, fit int) *decision.Record {
		return &decision.Record{Verb: decision.Filter, Profile: profile, Pod: decision.Pod{Namespace: "ns", Name: "p", UID: uid}, Nodes: 9, Fit: fit}
	}
	long := strings.Repeat("é", 500)
	failed := filtered("/failed", "u", 1)
	failed.Error = "no such pod"
	waited := func(minute int, reasons ...decision.Rejection) *decision.Record {
		r := filtered("/gpu", "u", 0)
		r.Time, r.Rejections = time.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC), reasons
		return r
	}
	for _, tt := range []struct {
		name    string
		records []*decision.Record
		want    string
	}{
		{"none", nil, ""},
		{"the binding profile", []*decision.Record{filtered("/gpu", "u", 2)}, "2 of 9 nodes fit"},
		{"another profile", []*decision.Record{filtered("/images", "u", 3), failed}, "3 of 9 nodes fit"},
		{"several", []*decision.Record{
			filtered("/images", "u", 4), filtered("/a", "u", 5), filtered("/gpu", "u", 6), filtered("/old", "former", 7), filtered("/images", "u", 8),
		}, "profile /gpu: 6 of 9 nodes fit; profile /a: 5 of 9 nodes fit; profile /images: 8 of 9 nodes fit"},
		{"after the pod has waited", []*decision.Record{
			waited(0, decision.Rejection{Text: "had none", Nodes: 9}), waited(5, decision.Rejection{Text: "had too little", Nodes: 8}, decision.Rejection{Text: "had none", Nodes: 1}),
			filtered("/gpu", "u", 1),
		}, "not scored, because only one node is left; 1 of 9 nodes fit; no node fit at 2026-03-01T12:05:00Z: 8 had too little"},
		{"more than 4 KiB", []*decision.Record{waited(0, slices.Repeat([]decision.Rejection{{Text: long, Nodes: 9}}, 6)...)},
			strings.ToValidUTF8(("0 of 9 nodes fit" + strings.Repeat("; 9 "+long, 6))[:4<<10], "") + "…"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := decision.NewLog(10)
			for _, r := range tt.records {
				log.Add(r, nil)
			}
			if got := log.Why(pod, "/gpu", "a"); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
