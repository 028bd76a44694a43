package engine_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
)

// Filter and Score make the same small number of allocations for 5,000 nodes as for 100: none per
// node.
func TestAllocations(t *testing.T) {
	const most = 40 // of any request below; nearly all are for the record
	tests := []struct {
		name      string
		shortlist int
		eighths   int // of the nodes that are rejected
		score     bool
	}{
		{"filter that all pass", 0, 0, false},
		{"filter that some pass", 0, 3, false},
		{"filter that none passes", 0, 8, false},
		{"filter with a shortlist", 10, 3, false},
		{"score", 0, 0, true},
	}
	for _, tt := range tests {
		for _, pod := range []string{"same pod", "other versions", "no identity", "signed"} {
			t.Run(tt.name+"/"+pod, func(t *testing.T) {
				small := allocations(t, 100, tt.shortlist, tt.eighths, tt.score, pod)
				large := allocations(t, 5000, tt.shortlist, tt.eighths, tt.score, pod)
				if small != large || large > most {
					t.Errorf("%v allocations for 100 nodes and %v for 5,000; want the same, at most %d", small, large, most)
				}
			})
		}
	}
}

func allocations(t *testing.T, nodes, shortlist, eighths int, score bool, pod string) float64 {
	var p policy.Policy = &stripes{eighths}
	if pod == "signed" {
		p = &signedStripes{stripes{eighths}}
	}
	e := newShortEngine(t, shortlist, engine.WeightedPolicy{Name: "Stripes", Policy: p, Weight: 1}, engine.WeightedPolicy{Name: "Same", Policy: p, Weight: 2})
	view := plainView(nodes)
	req := engine.Request{View: view, Nodes: allNodes(view)}
	pods := make([]*corev1.Pod, 200)
	for i := range pods {
		pods[i] = plainPod("u")
		switch pod {
		case "other versions", "signed":
			pods[i].ResourceVersion = fmt.Sprint(i)
		case "no identity":
			pods[i].UID = ""
		}
	}
	ask := e.Filter
	if score {
		ask = e.Score
	}
	var result engine.Result
	turn := 0
	return testing.AllocsPerRun(100, func() {
		req.Pod = pods[turn]
		turn++
		if err := ask(t.Context(), req, &result); err != nil {
			t.Fatal(err)
		}
	})
}
