package resourceclaims

import (
	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// ByAllocator returns the score of the node by the allocator alone, with no score kept, and whether the policy predicts the node without it.
func ByAllocator(allocator *firstfit.Predictor, c policy.Cycle, n *snapshot.Node) (score int64, arithmetic bool) {
	own := c.(*cycle)
	if own.plans != nil {
		_, arithmetic = own.plans.score(n)
	}
	score = policy.NoOpinion
	if results, err := allocator.Allocate(own.request, n); err == nil {
		if u := usageWith(n, devicesOf(results)); u.capacity > 0 {
			score = own.policy.packing().Score(u.used, u.capacity)
		}
	}
	return score, arithmetic
}

// OnlyAllocator makes the allocator predict all nodes.
func OnlyAllocator(c policy.Cycle) { c.(*cycle).plans = nil }
