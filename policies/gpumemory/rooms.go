package gpumemory

import (
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"outboard.dev/outboard/placement"
	"outboard.dev/outboard/snapshot"
)

// ratingSlots is how many ratings are kept with a node: about as many as there are
// shapes of pods that come often.
const ratingSlots = 64

// room is what is free of a node, and how it was rated for some shapes of pods.
type room struct {
	node    placement.Node
	kind    placement.Kind
	order   placement.Cost
	ratings [ratingSlots]atomic.Pointer[rating]
}

// rating is what a node offers a shape. It never changes.
type rating struct {
	lesson *lesson
	shape  placement.Shape
	offers placement.Offers
}

// roomOf counts with the given books instead of the node's own.
func (p *gpuMemory) roomOf(n *snapshot.Node, b *books) *room {
	cpu, memory := n.Object.Status.Allocatable[corev1.ResourceCPU], n.Object.Status.Allocatable[corev1.ResourceMemory]
	r := &room{node: placement.Node{
		Model: n.Object.Labels[p.config.ModelLabel],
		CPU:   cpu.MilliValue(), CPUCapacity: cpu.MilliValue(),
		Memory: memory.Value(), MemoryCapacity: memory.Value(),
	}}
	for _, pod := range n.Pods {
		cpu, memory := cpuAndMemory(snapshot.PodRequests(pod))
		r.node.CPU -= cpu
		r.node.Memory -= memory
	}
	if b.problem == nil {
		for _, c := range b.cards {
			gpu := placement.GPU{Size: c.capacity}
			if c.healthy {
				gpu.Free = c.free()
			}
			r.node.GPUs = append(r.node.GPUs, gpu)
		}
	}
	r.kind, r.order = r.node.Kind(), placement.Order(string(n.Object.UID))
	return r
}

// cpuAndMemory are in thousandths of a core and bytes, 0 or more.
func cpuAndMemory(requests corev1.ResourceList) (cpu, memory int64) {
	return max(0, requests.Cpu().MilliValue()), max(0, requests.Memory().Value())
}

// shape is what the pod asks for, wherever it is and whatever it was resized to since;
// possible is false if no node can serve it.
func (p *gpuMemory) shape(pod *corev1.Pod) (s placement.Shape, possible bool) {
	s.CPU, s.Memory = cpuAndMemory(resource.PodRequests(pod, resource.PodResourcesOptions{}))
	r := p.request(pod)
	switch {
	case r == nil:
		return s, true
	case r.refused != nil || r.cards > maxCards:
		return s, false
	}
	s.GPUs, s.Share, s.Models = int(r.cards), r.share, placement.NewModels(r.models...)
	return s, true
}
