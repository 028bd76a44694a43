package cost_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/policies/cost"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

func TestScenarios(t *testing.T) {
	policytest.RunScenarios(t, cost.Type(), "testdata/*.txtar")
}

// everySource has a price from each kind of source.
const everySource = `
prices:
- signal: prices
- {signal: list, keyLabels: [node.kubernetes.io/instance-type]}
- priceFrom: {annotation: example.com/price}
- priceFrom: {label: example.com/price}
`

func TestConformance(t *testing.T) {
	for name, config := range map[string]string{
		"share":    "whenStale: Reject",
		"sunk":     "scoringStrategy: {sunkCost: true}\nmaxPrice: 0.3\nspot: {fromPriority: 10}",
		"per node": "scoringStrategy: {type: NodeCost}",
	} {
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, policytest.Options{
				New: policytest.FromYAML(cost.Type(), everySource+config),
				Pods: policytest.Pods(`
- metadata: {name: new}
  spec: {containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi, example.com/fpga: 1}}}]}
- metadata: {name: important}
  spec: {priority: 100}
`),
				Nodes: policytest.Nodes(`
- metadata: {name: a, labels: {example.com/price: "0.5"}, annotations: {example.com/price: "0.4"}}
  status: {allocatable: {cpu: 4, memory: 8Gi, example.com/fpga: 2}}
- metadata: {name: b, labels: {example.com/price: "0.5", karpenter.sh/capacity-type: spot}}
  status: {allocatable: {cpu: 8, memory: 8Gi, pods: 20}}
- metadata: {name: c, labels: {node.kubernetes.io/instance-type: m6i.large, topology.kubernetes.io/zone: a}}
  status: {allocatable: {cpu: 8, memory: 8Gi, pods: 20}}
- metadata: {name: d}
`),
				Assigned: policytest.Pods(`
- {metadata: {name: w1}, spec: {nodeName: a}}
- metadata: {name: w2, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: w2, uid: u, controller: true}]}
  spec: {nodeName: b}
`),
				Signals: policytest.Signals(`
prices: {a: 0.3, b: {number: 0.2, stale: true}}
list: {m6i.large: 0.1}
`),
			})
		})
	}
}

// TestNormalizeScore: the cheapest nodes have 100, others in proportion, and a node that costs more
// never has a higher score.
func TestNormalizeScore(t *testing.T) {
	cycle := policytest.Prepare[policy.NormalizeScore](t, policytest.Build(t, cost.Type(), "prices: [{priceFrom: {label: price}}]"), new(corev1.Pod), new(snapshot.View))
	raw := rapid.OneOf(rapid.Int64Range(0, 5), rapid.Int64Range(0, math.MaxInt64/2))
	rapid.Check(t, func(t *rapid.T) {
		costs := rapid.SliceOfN(raw, 1, 20).Draw(t, "costs")
		scores := slices.Clone(costs)
		cycle.NormalizeScore(scores)
		cheapest := slices.Min(costs)
		for i, score := range scores {
			if (score == policy.MaxScore) != (costs[i] == cheapest) {
				t.Errorf("of %v, %d is scored %d", costs, costs[i], score)
			}
			if want := 100 * float64(cheapest) / float64(costs[i]); costs[i] > cheapest && math.Abs(float64(score)-want) > 1 {
				t.Errorf("of %v, %d is scored %d, want about %g", costs, costs[i], score, want)
			}
			for j := range scores {
				if costs[i] < costs[j] && scores[i] < scores[j] {
					t.Errorf("%d is scored %d, but %d %d", costs[i], score, costs[j], scores[j])
				}
			}
		}
	})
}

func TestExplain(t *testing.T) {
	const config = `
prices: [{signal: prices}, {priceFrom: {annotation: example.com/price}}, {priceFrom: {label: example.com/price}}]
scoringStrategy: {sunkCost: true}
spot: {fromPriority: 5}
`
	const nodes = `
- metadata: {name: known, labels: {karpenter.sh/capacity-type: spot}}
  status: {allocatable: {cpu: 4, memory: 8Gi}}
- metadata: {name: stale, labels: {example.com/price: "0.4"}, annotations: {example.com/price: much}}
  status: {allocatable: {cpu: 4, memory: 64Gi}}
- metadata: {name: unknown}
- metadata: {name: negative}
`
	view := policytest.View(policytest.Nodes(nodes), policytest.Pods(`{metadata: {name: w}, spec: {nodeName: stale}}`),
		policytest.Signals(`prices: {known: 0.1, stale: {number: 0.3, stale: true}, negative: -1}`))
	pod := policytest.Pods(`{metadata: {name: new}, spec: {priority: 7, containers: [{name: a, resources: {requests: {cpu: 1, memory: 4Gi}}}]}}`)[0]
	cycle := policytest.Prepare[policy.Explainer](t, policytest.Build(t, cost.Type(), config), pod, view)
	for node, want := range map[string][]string{
		"": {"spot nodes: not allowed (its priority 7 is at least spot.fromPriority, 5)"},
		"known": {
			"cost of the pod: 0.05 = 0.1 (signal prices at 2026-01-01T12:00:00Z) × 0.5 (the pod's share of memory)",
			"score: by the whole price, 0.1 (the node is empty)",
		},
		"stale": {
			"cost of the pod: 0.1 = 0.4 (label example.com/price) × 0.25 (the pod's share of cpu)",
			"signal prices: unknown (signal prices is stale for the node, 0.3 at 2026-01-01T12:00:00Z)",
			`annotation example.com/price: "much" is not a price`,
		},
		"unknown":  {"price: unknown"},
		"negative": {"price: unknown", "signal prices: -1 is not a price"},
	} {
		if got := cycle.Explain(view.Node(node)); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", node, got, want)
		}
	}
}

func TestExplainNodeCost(t *testing.T) {
	node := snapshot.NewNode(policytest.Nodes(`{metadata: {name: a, labels: {example.com/price: "0.4"}}}`)[0])
	cycle := policytest.Prepare[policy.Explainer](t, policytest.Build(t, cost.Type(), "{prices: [{priceFrom: {label: example.com/price}}], scoringStrategy: {type: NodeCost}}"), new(corev1.Pod), new(snapshot.View))
	if got, want := cycle.Explain(node), []string{"cost of the node: 0.4 (label example.com/price)"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSignals(t *testing.T) {
	want := []policy.Signal{
		{Field: "prices[0].signal", Name: "prices", About: policy.AboutNodes},
		{Field: "prices[1].signal", Name: "list", About: policy.AboutKeys},
	}
	if got := policytest.Build(t, cost.Type(), everySource).(policy.InputReader).Inputs().Signals; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNumbersThatNoFileHas(t *testing.T) {
	config := cost.Defaults()
	config.Prices = []cost.Source{{PriceFrom: &fields.From{Label: "price"}}}
	config.MaxPrice = new(math.NaN())
	_, err := cost.New(config)
	if err == nil || !strings.Contains(err.Error(), "maxPrice") {
		t.Errorf("got %v, want an error about maxPrice", err)
	}
}

func BenchmarkCost(b *testing.B) {
	quantity := resource.MustParse
	var builder snapshot.Builder
	prices := map[string]snapshot.Value{}
	for i := range 5000 {
		name := fmt.Sprint("node-", i)
		builder.SetNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				corev1.LabelInstanceTypeStable: fmt.Sprint("type-", i%300), corev1.LabelTopologyZone: fmt.Sprint("zone-", i%3),
				"karpenter.sh/capacity-type": []string{"spot", "on-demand"}[i%2],
			}},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
				"cpu": quantity("15900m"), "memory": quantity("60Gi"), "pods": quantity("110"), "ephemeral-storage": quantity("100Gi"),
			}},
		})
		prices[name] = snapshot.Value{Number: float64(i%97) / 100, At: policytest.Now}
		for j := range 30 {
			builder.SetPod(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", j), UID: types.UID(fmt.Sprint(i, "/", j))},
				Spec:       corev1.PodSpec{NodeName: name},
			})
		}
	}
	builder.SetSignal(snapshot.NewSignal("prices", prices))
	view := builder.View()
	pod := policytest.Pods(`{metadata: {name: new}, spec: {containers: [{name: a, resources: {requests: {cpu: 1, memory: 4Gi}}}]}}`)[0]
	config := "prices: [{signal: prices}]\nscoringStrategy: {sunkCost: true}\nmaxPrice: 5"
	policytest.Benchmark(b, policytest.Build(b, cost.Type(), config), pod, view)
}
