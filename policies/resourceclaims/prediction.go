package resourceclaims

import (
	resourcev1 "k8s.io/api/resource/v1"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// maxScores is how many scores are kept, in about 100 bytes each: those of 26 kinds of claims on
// 5,000 nodes that all differ.
const maxScores = 1 << 17

// score returns the score of the node for the request.
//
// Invariant: nodes of one kind have one score, for which kube-scheduler's allocator runs once,
// whatever their number: see [firstfit.Kind].
func (p *resourceClaims) score(r *firstfit.Request, n *snapshot.Node) int64 {
	if len(n.DevicePools()) == 0 {
		return policy.NoOpinion
	}
	key := scoreKey{r.Key(), p.predictor.Kind(r, n)}
	p.mu.RLock()
	score, known := p.scores[key]
	p.mu.RUnlock()
	if known {
		return score
	}
	score = policy.NoOpinion
	if results, err := p.predictor.Allocate(r, n); err == nil {
		if used, capacity := usageWith(n, devicesOf(results)); capacity > 0 {
			score = p.scoring.Score(used, capacity)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.scores) >= maxScores {
		clear(p.scores)
	}
	p.scores[key] = score
	return score
}

// devicesOf returns the devices of all claims.
func devicesOf(results []resourcev1.AllocationResult) []*resourcev1.DeviceRequestAllocationResult {
	var all []*resourcev1.DeviceRequestAllocationResult
	for i := range results {
		for j := range results[i].Devices.Results {
			all = append(all, &results[i].Devices.Results[j])
		}
	}
	return all
}

// scoreKey is all that a score depends on: the request, and the kind of the node for it.
type scoreKey struct {
	request firstfit.Key
	node    firstfit.Kind
}
