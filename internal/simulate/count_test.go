package simulate_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/simulate"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy"
)

// Nodes whose labels, and pods whose annotations say what the policy counts can be filled up.
func TestCountBy(t *testing.T) {
	config := gpumemory.Defaults()
	config.NodeAgent = gpumemory.ContainerToolkit
	p, err := gpumemory.New(config)
	if err != nil {
		t.Fatal(err)
	}
	node := func(name, gpus string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"nvidia.com/gpu.count": gpus, "nvidia.com/gpu.memory": "16384"}},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"pods": resource.MustParse("100")}}}
	}
	pod := func(key, value string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p" + value, Annotations: map[string]string{key: value}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	}
	plan := &simulate.Plan{
		Nodes: []*corev1.Node{node("one", "1"), node("four", "4")},
		Mix:   []*corev1.Pod{pod("nvidia.com/container.c.gpu-memory.limit", "8Gi"), pod("outboard.dev/whole-gpus", "2"), pod("x", "y")},
	}
	const memory = "nvidia.com/gpu-memory"
	if !plan.CountBy(p.(policy.Reserver), memory) || plan.CountBy(p.(policy.Reserver), memory) {
		t.Error("counts twice, or not at all")
	}
	world := simulate.World{Nodes: plan.Nodes, Resource: memory}
	if got := world.Capacity(); got != 5*16384 {
		t.Errorf("the nodes have %d", got)
	}
	for i, want := range []int64{8192, 2 * 16384, 0} {
		if got := simulate.Demand(plan.Mix[i], memory); got != want {
			t.Errorf("pod %d requests %d, want %d", i, got, want)
		}
	}
}
