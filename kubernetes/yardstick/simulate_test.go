package yardstick

import (
	"context"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/simulate"
)

// TestPlaces compares where a simulation places a pod, without an extender, with the results of the filters of the default
// profile and the scores of NodeResourcesFit and NodeResourcesBalancedAllocation. Simulations omit other scores.
func TestPlaces(t *testing.T) {
	for kind, strategy := range map[simulate.ResourceScore]schedulerapi.ScoringStrategyType{
		simulate.LeastAllocated: schedulerapi.LeastAllocated, simulate.MostAllocated: schedulerapi.MostAllocated,
	} {
		t.Run(string(kind), func(t *testing.T) {
			f := newInTree(t, func(args *schedulerapi.NodeResourcesFitArgs) { args.ScoringStrategy.Type = strategy })
			placed, distinct := 0, 0
			rapid.Check(t, func(t *rapid.T) {
				d := draw{t}
				nodes, pods := d.cluster()
				f.set(nodes, pods)
				pod := d.resourcesOnly("pod")
				want, scores := best(t, f.begin(pod), nodes)
				if want != "" {
					placed++
				}
				if least, most := extremes(scores); least < most {
					distinct++
				}
				if got := simulated(t, nodes, pods, pod, kind); got != want {
					t.Fatalf("the simulation places the pod on node %q, and kube-scheduler on node %q: %v", got, want, scores)
				}
			})
			if placed == 0 || distinct == 0 {
				t.Errorf("%d pods were placed, %d of them on a node that is better than another", placed, distinct)
			}
		})
	}
}

// best returns the first of the nodes with the best scores; "" if the pod fits on none.
func best(t *rapid.T, a *attempt, nodes []*corev1.Node) (node string, scores map[string]int64) {
	var fit []string
	for _, n := range nodes {
		if _, reasons := a.filter(n.Name); reasons == nil && a.preFilterLeaves(n.Name) {
			fit = append(fit, n.Name)
		}
	}
	if len(fit) == 0 {
		return "", nil
	}
	parts, err := a.score(fit...)
	if err != nil {
		t.Fatal(err)
	}
	scores = map[string]int64{}
	for name, part := range parts {
		scores[name] = part[names.NodeResourcesFit] + part[names.NodeResourcesBalancedAllocation]
	}
	_, most := extremes(scores)
	return slices.MinFunc(fit, func(a, b string) int {
		switch {
		case scores[a] == most && scores[b] != most, (scores[a] == most) == (scores[b] == most) && a < b:
			return -1
		}
		return 1
	}), scores
}

func extremes(scores map[string]int64) (least, most int64) {
	if len(scores) == 0 {
		return 0, 0
	}
	all := slices.Collect(maps.Values(scores))
	return slices.Min(all), slices.Max(all)
}

// simulated returns the node on which a simulation places the pod; "" if it fits on none.
func simulated(t *rapid.T, nodes []*corev1.Node, pods []*corev1.Pod, pod *corev1.Pod, kind simulate.ResourceScore) string {
	w := simulate.World{
		Nodes: nodes, Running: pods,
		Scheduler: simulate.Scheduler{PercentageOfNodesToScore: 100, ResourceScore: kind, FirstOfEqual: true},
	}
	placements, err := w.Place(context.Background(), []*corev1.Pod{pod}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return placements[0].Node
}
