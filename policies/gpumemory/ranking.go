package gpumemory

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/internal/placement/strategy"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/claims"
	"outboard.dev/outboard/snapshot"
)

// This file is the second half of the policy: the scores, and the choice of a GPU, by a strategy that compares all nodes
// (scoringStrategy.type: LeastWaste). It describes nodes and pods for the strategy in internal/placement/strategy, which has
// the arithmetic, and uses its ranking. Whether a pod fits does not depend on it.

// ranking is the Cycle of a pod without GPUs where nodes are ranked by a strategy.
type ranking struct {
	policy *gpuMemory
	pod    claims.Pod
	strategy.Ranking
}

// rankingCycle is the Cycle of a pod with GPUs where nodes are ranked.
type rankingCycle struct {
	filter
	ranking
}

// Signature implements policy.Signature. It need not cover the scores, which ScoreRows computes for each View, and there are no verdicts.
func (r *ranking) Signature() string { return "" }

// Signature implements policy.Signature: that of the verdicts.
func (c *rankingCycle) Signature() string { return c.filter.Signature() }

// Score implements policy.Score: no node is better than one on which the pod has its GPUs already.
func (r *ranking) Score(n *snapshot.Node) int64 {
	if r.policy.usage.Of(n).holders.Has(r.pod) {
		return math.MaxInt64
	}
	return r.Ranking.Score(n)
}

// preferred returns the best GPU for a share, or placement.FirstFree if no strategy chooses.
func (p *gpuMemory) preferred(ask policy.ReserveRequest, n *snapshot.Node, u *usage) int {
	if p.ranker == nil {
		return placement.FirstFree
	}
	room := p.room(n, u)
	return p.ranker.GPU(ask.View, ask.Pod, &room)
}

// room returns what is free of the node, with the given usage instead of the node's own.
func (p *gpuMemory) room(n *snapshot.Node, u *usage) placement.Node {
	cpu, memory := n.Object.Status.Allocatable[corev1.ResourceCPU], n.Object.Status.Allocatable[corev1.ResourceMemory]
	room := placement.Node{
		Model: n.Object.Labels[p.config.ModelLabel],
		CPU:   cpu.MilliValue(), CPUCapacity: cpu.MilliValue(),
		Memory: memory.Value(), MemoryCapacity: memory.Value(),
	}
	for i := range n.Pods {
		pod := podStates.Of(n, i)
		room.CPU -= pod.cpu
		room.Memory -= pod.ram
	}
	if u.problem == nil {
		for _, c := range u.gpus {
			gpu := placement.GPU{Size: c.capacity}
			if c.healthy {
				gpu.Free = c.free()
			}
			room.GPUs = append(room.GPUs, gpu)
		}
	}
	return room
}

// cpuAndMemory returns thousandths of a core and bytes, each 0 or more.
func cpuAndMemory(requests corev1.ResourceList) (cpu, memory int64) {
	return max(0, requests.Cpu().MilliValue()), max(0, requests.Memory().Value())
}

// shape returns what the pod requests, bound or not, and before any resize; possible is false if no
// node can serve it.
func (p *gpuMemory) shape(pod *corev1.Pod) (s placement.Shape, possible bool) {
	s.CPU, s.Memory = cpuAndMemory(resource.PodRequests(pod, resource.PodResourcesOptions{}))
	r := p.request(pod)
	switch {
	case r == nil:
		return s, true
	case r.refused != nil || r.gpus > maxGPUs:
		return s, false
	}
	s.GPUs, s.Share, s.Models = int(r.gpus), r.share, placement.NewModels(r.models...)
	return s, true
}
