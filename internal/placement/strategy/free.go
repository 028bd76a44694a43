package strategy

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/snapshot"
)

// FreeOn returns what is free of the node's processors and memory, given which of its pods have
// GPUs.
func FreeOn(n *snapshot.Node, hasGPUs func(*corev1.Pod) bool) placement.Node {
	cpu, memory := n.Object.Status.Allocatable[corev1.ResourceCPU], n.Object.Status.Allocatable[corev1.ResourceMemory]
	free := placement.Node{
		CPU: cpu.MilliValue(), CPUCapacity: cpu.MilliValue(),
		Memory: memory.Value(), MemoryCapacity: memory.Value(),
	}
	for i := range n.Pods {
		pod := podSizes.Of(n, i)
		free.CPU -= pod.cpu
		free.Memory -= pod.memory
		if !hasGPUs(n.Pods[i]) {
			free.PlainCPU += pod.cpu
			free.PlainMemory += pod.memory
		}
	}
	return free
}

// podSizes are what each pod on a node requests, as cpuAndMemory returns it.
var podSizes = snapshot.NewPodFact(func(pod *corev1.Pod) (s struct{ cpu, memory int64 }) {
	s.cpu, s.memory = cpuAndMemory(snapshot.PodRequests(pod))
	return s
})

// ShapeOf returns what the pod requests of processors and memory, before any resize.
func ShapeOf(pod *corev1.Pod) (s placement.Shape) {
	s.CPU, s.Memory = cpuAndMemory(resource.PodRequests(pod, resource.PodResourcesOptions{}))
	return s
}

// cpuAndMemory returns thousandths of a core and bytes, each 0 or more.
func cpuAndMemory(requests corev1.ResourceList) (cpu, memory int64) {
	return max(0, requests.Cpu().MilliValue()), max(0, requests.Memory().Value())
}
