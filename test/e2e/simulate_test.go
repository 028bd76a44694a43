package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/simulate"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/controlplane"
)

const leastWaste = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- shortlist: 1
  policies:
  - {type: GPUMemory, config: {scoringStrategy: {type: LeastWaste}}}
`

// The cluster behaves as the simulation predicts from the nodes and pods in the API server: each
// pod goes to the predicted node and GPU.
func TestWhatIsSimulatedHappens(t *testing.T) {
	th := open(t)
	for i := range 4 {
		th.nodes(gpus(fmt.Sprintf("gpu-%d", i), 2, 16))
	}
	th.nodes(gpus("gpu-8", 4, 24), controlplane.NodeSpec{Name: "plain"})
	o := th.outboard(leastWaste)
	th.scheduler(schedulerConfig(extender{o: o, verbs: "filter bind preempt"}))
	config := gpumemory.Defaults()
	config.ScoringStrategy.Type = gpumemory.LeastWaste
	policy, err := gpumemory.New(config)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "GPUMemory", Policy: policy, Weight: 1}}, Shortlist: 1})
	if err != nil {
		t.Fatal(err)
	}
	nodes := map[string]bool{}
	// There are too few pods for the first workload model: otherwise the result would depend on the
	// view in which a pod first appears.
	for i, units := range []int{6, 10, 4, 16, 6, 20, 3, 0, 12, 9, 7, 2, 6, 24} {
		spec := gpuPod(fmt.Sprintf("p%02d", i), units)
		if units == 0 {
			spec.Resources = map[string]string{"cpu": "1"}
		}
		world := th.asItIs(t.Context(), e)
		foretold, err := world.Next(t.Context(), spec.Pod())
		if err != nil {
			t.Fatal(err)
		}
		happened := th.boundAndSeen(o, spec)
		if happened.Spec.NodeName != foretold.Spec.NodeName || happened.Annotations[gpuIndex] != foretold.Annotations[gpuIndex] {
			t.Errorf("%s with %d is on GPU %q of %s; predicted is GPU %q of %s", happened.Name, units,
				happened.Annotations[gpuIndex], happened.Spec.NodeName, foretold.Annotations[gpuIndex], foretold.Spec.NodeName)
		}
		nodes[happened.Spec.NodeName] = true
	}
	if len(nodes) < 3 {
		t.Errorf("all pods are on %v", nodes)
	}
}

// asItIs returns the cluster as the API server stores it.
func (th *theater) asItIs(ctx context.Context, e *engine.Engine) *simulate.World {
	th.t.Helper()
	nodes, err := th.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		th.t.Fatal(err)
	}
	pods, err := th.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		th.t.Fatal(err)
	}
	w := &simulate.World{Resource: corev1.ResourceName(gpuMem), Extender: simulate.Extender{Engine: e}, Scheduler: simulate.Scheduler{ExtenderWeight: 1}}
	for i := range nodes.Items {
		snapshot.TrimNode(&nodes.Items[i])
		w.Nodes = append(w.Nodes, &nodes.Items[i])
	}
	for i := range pods.Items {
		snapshot.TrimPod(&pods.Items[i])
		w.Running = append(w.Running, &pods.Items[i])
	}
	return w
}
