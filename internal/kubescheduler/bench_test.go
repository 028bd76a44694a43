package kubescheduler_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/snapshot"
)

// BenchmarkLacks asks about each of 5,000 nodes with 8 pods each once for a pod, after an earlier pod. The target is 1 ms.
func BenchmarkLacks(b *testing.B) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory), "example.com/gpu": resource.MustParse("1")}
	}
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("4", "32Gi")}}}},
		}
	}
	var builder snapshot.Builder
	for i := range 5000 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i)}, Status: corev1.NodeStatus{Allocatable: list("96", "768Gi")}}
		n.Status.Allocatable["pods"], n.Status.Allocatable["example.com/gpu"] = resource.MustParse("110"), resource.MustParse("16")
		builder.SetNode(n)
		for j := range 8 {
			builder.SetPod(pod(fmt.Sprintf("p-%d-%d", i, j), n.Name))
		}
	}
	view := builder.View()
	lacking := func() (count int) {
		filters := kubescheduler.For(pod("new", ""))
		for n := range view.All() {
			if filters.Lacks(n) != "" {
				count++
			}
		}
		return count
	}
	lacking()
	for b.Loop() {
		if n := lacking(); n != 0 {
			b.Fatalf("%d nodes lack something", n)
		}
	}
}
