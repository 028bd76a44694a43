package gpumemory

import (
	"cmp"
	"math"
	"slices"

	"outboard.dev/outboard/placement"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// ranking scores nodes for a pod by what it costs to place it there. It is the Cycle
// of a pod without GPUs.
type ranking struct {
	market *market
	pod    asker
	query  query
}

// rankedCycle is the Cycle of a pod with GPUs where nodes are ranked.
type rankedCycle struct {
	fitting
	ranking
}

// Score implements policy.Score.
func (r *ranking) Score(n *snapshot.Node) int64 {
	if r.market.placer.policy.books.Of(n).holds(r.pod) {
		return math.MaxInt64
	}
	return -int64(r.market.cost(n, &r.query))
}

// NormalizeScore implements policy.NormalizeScore: the best node gets 100, the next
// 99, and so on, equal ones the same: costs are compared, and not measured against
// what other policies say.
func (r *ranking) NormalizeScore(scores []int64) {
	var best [policy.MaxScore]int64
	ranks := best[:0] // the different scores, the best first
	for _, s := range scores {
		if len(ranks) == len(best) && s < best[len(best)-1] {
			continue // as most are
		}
		at, known := slices.BinarySearchFunc(ranks, s, descending)
		if known {
			continue
		}
		if len(ranks) == len(best) {
			ranks = ranks[:len(ranks)-1]
		}
		ranks = slices.Insert(ranks, at, s)
	}
	for i, s := range scores {
		if s < ranks[len(ranks)-1] {
			scores[i] = 0
			continue
		}
		at, known := slices.BinarySearchFunc(ranks, s, descending)
		scores[i] = 0
		if known {
			scores[i] = policy.MaxScore - int64(at)
		}
	}
}

func descending(a, b int64) int { return cmp.Compare(b, a) }

// card returns the card on which a share of it is placed best, or -1 if the strategy
// does not say.
func (p *gpuMemory) card(ask policy.Ask, n *snapshot.Node, b *books) int {
	s, possible := p.shape(ask.Pod)
	if p.placer == nil || ask.View == nil || !possible || !s.Shares() {
		return placement.FirstFree
	}
	m := p.placer.market(ask.View)
	offers := m.lesson.rate(&p.roomOf(n, b).node, s)
	best, found := m.best(&offers, s)
	if !found {
		return placement.FirstFree
	}
	return int(best.GPU)
}
