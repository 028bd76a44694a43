package strategy

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Ranking scores nodes for a pod by the cost of placing it there. It is a policy.Score, a
// policy.ScoreRows, a policy.NormalizeScore and a policy.Explainer.
type Ranking struct {
	state *clusterState
	shape placement.Shape
	slot  uint32 // index of the ratings for the shape
}

// Rank returns the Ranking for a pod over a View.
func (r *Ranker) Rank(view *snapshot.View, pod *corev1.Pod) Ranking {
	shape, _ := r.options.Shape(pod)
	return Ranking{r.state(view), shape, slotOf(shape)}
}

func slotOf(s placement.Shape) uint32 {
	hash := uint64(s.CPU)*0x9e3779b97f4a7c15 ^ uint64(s.Memory)*0xc2b2ae3d27d4eb4f ^ uint64(s.Share)*0x165667b19e3779f9 ^ uint64(s.GPUs)*0x27d4eb2f165667c5
	return uint32(hash>>32) % ratingSlots
}

// Score implements policy.Score: the negative cost, in millionths of a GPU unless the strategy
// defines another unit, or less than any cost if the pod does not fit.
func (r *Ranking) Score(n *snapshot.Node) int64 { return -int64(r.cost(n)) }

// cost returns the cost of placing the pod on the node; the largest possible cost if it does not fit.
func (r *Ranking) cost(n *snapshot.Node) placement.Cost {
	state := *r.state.ranker.states.Of(n)
	slot := &state.ratings[r.slot]
	kept := slot.Load()
	if kept == nil || kept.model != r.state.model || kept.shape != r.shape {
		kept = &rating{r.state.model, r.shape, r.state.model.Rate(&state.node, r.shape)}
		slot.Store(kept)
	}
	best, found := r.state.best(&kept.offers, r.shape)
	if !found {
		return math.MaxInt64
	}
	if r.state.prices != nil {
		best.Cost += state.order
	}
	return best.Cost
}

// NormalizeScore implements policy.NormalizeScore: the best node gets 100, the next one 99, and so
// on, equal nodes the same. Costs are only compared, and not weighed against scores of other
// policies.
func (r *Ranking) NormalizeScore(scores []int64) {
	var memory [policy.MaxScore]int64
	best := memory[:0] // the best different scores, in ascending order
	for _, s := range scores {
		full := len(best) == len(memory)
		if full && s <= best[0] {
			continue // as for most scores
		}
		switch at, known := slices.BinarySearch(best, s); {
		case known:
		case full:
			copy(best, best[1:at])
			best[at-1] = s
		default:
			best = slices.Insert(best, at, s)
		}
	}
	for i, s := range scores {
		scores[i] = 0
		if s >= best[0] {
			at, _ := slices.BinarySearch(best, s)
			scores[i] = policy.MaxScore - int64(len(best)-1-at)
		}
	}
}
