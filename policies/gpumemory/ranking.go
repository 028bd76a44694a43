package gpumemory

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/internal/placement/strategy"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// ranking is the Cycle of a pod without GPUs where nodes are ranked by a strategy.
type ranking struct {
	policy *gpuMemory
	pod    types.UID
	strategy.Ranking
}

// rankingCycle is the Cycle of a pod with GPUs where nodes are ranked.
type rankingCycle struct {
	cycle
	ranking
}

// Signature implements policy.Signature. It need not cover the scores, which ScoreRows computes for
// each View, and there are no verdicts.
func (r *ranking) Signature() string { return "" }

// Signature implements policy.Signature: that of the verdicts.
func (c *rankingCycle) Signature() string { return c.cycle.Signature() }

// Score implements policy.Score: no node is better than one on which the pod has its GPUs already.
func (r *ranking) Score(n *snapshot.Node) int64 {
	if r.policy.usage.Of(n).holders.Has(r.pod) {
		return math.MaxInt64
	}
	return r.Ranking.Score(n)
}

func (c *rankingCycle) Score(n *snapshot.Node) int64 { return c.ranking.Score(n) }

// preferred returns the best GPU for a share, or placement.FirstFree if no strategy chooses.
func (p *gpuMemory) preferred(ask policy.ReserveRequest, n *snapshot.Node, u *usage) int {
	if p.ranker == nil || ask.View == nil {
		return placement.FirstFree
	}
	ranking, possible := p.ranker.Rank(ask.View, snapshot.PodEvent{Pod: ask.Pod})
	if !possible {
		return placement.FirstFree
	}
	free := p.freeOn(n, u)
	return ranking.GPU(&free)
}

// free returns what is free of the node, with the given usage instead of the node's own.
func (p *gpuMemory) freeOn(n *snapshot.Node, u *usage) placement.Node {
	free := strategy.FreeOn(n, func(pod *corev1.Pod) bool { return u.holders.Has(pod.UID) })
	if !p.hardware.Of(n).mixed {
		free.Model = n.Object.Labels[p.config.ModelLabel]
	}
	if u.problem == nil {
		for i := range u.gpus {
			d := &u.gpus[i]
			gpu := placement.GPU{Size: d.Capacity}
			if d.Healthy {
				gpu.Free = d.Free()
			}
			free.GPUs = append(free.GPUs, gpu)
		}
	}
	return free
}

// shapes are what pods request: it depends on the pod alone.
type shapes struct{ policy *gpuMemory }

// Of implements strategy.Shapes: what the pod requests, before any resize.
func (p *shapes) Of(e snapshot.PodEvent) (s placement.Shape, possible bool) {
	s = strategy.ShapeOf(e.Pod)
	r, err := p.policy.request(e.Pod)
	switch {
	case err != nil:
		return s, false
	case r == nil:
		return s, true
	case r.refused != nil || r.gpus > maxGPUs:
		return s, false
	}
	s.GPUs, s.Share, s.Models = int(r.gpus), r.share, placement.NewModels(r.models...)
	return s, true
}
