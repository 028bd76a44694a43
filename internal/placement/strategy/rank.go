package strategy

import (
	"fmt"
	"math"
	"slices"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Ranking scores nodes for a pod by the cost of placing it there. It is a policy.Score, a
// policy.ScoreRows, a policy.NormalizeScore and a policy.Explainer.
type Ranking struct {
	state *clusterState
	shape placement.Shape
}

// Rank returns the Ranking for a pod over a View; possible is false if no node can serve it, or if
// no shape describes it.
func (r *Ranker) Rank(view *snapshot.View, pod snapshot.PodEvent) (ranking Ranking, possible bool) {
	state := r.state(view)
	shape, possible := state.shapes.Of(pod)
	return Ranking{state, shape}, possible
}

// Score implements policy.Score: the negative cost, in millionths of a GPU unless the strategy
// defines another unit. kube-scheduler calls only for nodes where it found free: if there is none
// here, it knows more, and the score is [policy.NoOpinion].
func (r *Ranking) Score(n *snapshot.Node) int64 {
	state := r.state.ranker.states.Of(n)
	_, cost, found := r.best(&state.node)
	switch {
	case !found:
		return scoreOf(noRoom)
	case r.state.prices != nil:
		cost += state.order
	}
	return scoreOf(cost)
}

// noRoom is the cost on a node on which the pod does not fit.
const noRoom placement.Cost = math.MaxInt64

func scoreOf(cost placement.Cost) int64 {
	score := -int64(cost)
	switch {
	case cost == noRoom:
		return policy.NoOpinion
	case score == policy.NoOpinion:
		return score - 1
	}
	return score
}

// best returns the best offer of what is free of a node, by cost and price, and both together.
func (r *Ranking) best(of *placement.Node) (best placement.Offer, cost placement.Cost, found bool) {
	offers := r.state.model.Rate(of, r.shape)
	for _, o := range offers.All() {
		if priced := o.Cost + r.state.priceOf(r.shape, o.Terms); !found || priced < cost {
			best, cost, found = o, priced, true
		}
	}
	return best, cost, found
}

// GPU returns the index of the GPU with the lowest cost for a share of the pod, given what is free
// of the node, or [placement.FirstFree] if the strategy does not choose.
func (r *Ranking) GPU(of *placement.Node) int {
	if best, _, found := r.best(of); found && r.shape.Shares() {
		return int(best.GPU)
	}
	return placement.FirstFree
}

// Explain describes the cost of placing the pod on the node, or, if node is nil, what the strategy
// has learned; and returns the GPU of the node with the lowest cost, or [placement.FirstFree].
func (r *Ranking) Explain(n *snapshot.Node) (said []string, gpu int) {
	s := r.state
	if n == nil {
		return []string{fmt.Sprintf("%s: workload model of the first %d pods", s.ranker.options.Strategy.Name, s.model.after)}, placement.FirstFree
	}
	state := s.ranker.states.Of(n)
	best, _, found := r.best(&state.node)
	switch {
	case !found:
		return nil, placement.FirstFree
	case s.supply != nil:
		said = s.supply.Explain(s.prices, &state.node, r.shape, best, state.order)
	}
	return said, int(best.GPU)
}

// NormalizeScore implements policy.NormalizeScore: the best node gets 100, the next one 99, and so
// on, equal nodes the same. Costs are only compared, and not weighed against scores of other
// policies. [policy.NoOpinion] stays as it is.
func (r *Ranking) NormalizeScore(scores []int64) {
	var memory [policy.MaxScore]int64
	best := memory[:0] // the best different scores, in ascending order
	for _, s := range scores {
		full := len(best) == len(memory)
		if s == policy.NoOpinion || full && s <= best[0] {
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
		if s == policy.NoOpinion {
			continue
		}
		scores[i] = 0
		if s >= best[0] {
			at, _ := slices.BinarySearch(best, s)
			scores[i] = policy.MaxScore - int64(len(best)-1-at)
		}
	}
}
