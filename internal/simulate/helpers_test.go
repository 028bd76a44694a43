package simulate

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/gpushare"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy"
)

func list(pairs ...any) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i].(string))] = resource.MustParse(fmt.Sprint(pairs[i+1]))
	}
	return l
}

// machine has this many GPUs of 16 units.
func machine(name string, gpus int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	n.Status.Allocatable = list("cpu", 32, "memory", "64Gi", "pods", 110)
	if gpus > 0 {
		n.Status.Allocatable[gpushare.Memory], n.Status.Allocatable[gpushare.Count] = *resource.NewQuantity(int64(16*gpus), resource.DecimalSI), *resource.NewQuantity(int64(gpus), resource.DecimalSI)
	}
	n.Status.Capacity = n.Status.Allocatable
	return n
}

func machines(count, gpus int) []*corev1.Node {
	var all []*corev1.Node
	for i := range count {
		all = append(all, machine(fmt.Sprintf("n%02d", i), gpus))
	}
	return all
}

// podOf requests this many units of one GPU.
func podOf(name string, units int) *corev1.Pod {
	requested := list("cpu", "1", "memory", "1Gi")
	if units > 0 {
		requested[gpushare.Memory] = *resource.NewQuantity(int64(units), resource.DecimalSI)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requested, Limits: requested}}}},
	}
}

// gpuEngine runs only GPUMemory.
func gpuEngine(t testing.TB, strategy policy.ScoringStrategyType, shortlist int) *engine.Engine {
	t.Helper()
	config := gpumemory.Defaults()
	config.ScoringStrategy.Type, config.MultiGPU = strategy, true
	p, err := gpumemory.New(config)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "GPUMemory", Policy: p, Weight: 1}}, Shortlist: shortlist})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func world(t testing.TB, nodes []*corev1.Node, strategy policy.ScoringStrategyType) *World {
	return &World{
		Nodes: nodes, Resource: gpushare.Memory, Scheduler: Scheduler{ResourceScore: LeastAllocated},
		Extenders: []Extender{{Engine: gpuEngine(t, strategy, 1), Weight: 1}},
	}
}
