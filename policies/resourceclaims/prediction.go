package resourceclaims

import (
	"sync/atomic"

	resourcev1 "k8s.io/api/resource/v1"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// keptPredictions is how many predictions of the allocator are kept with a node: about the number of common requests.
const keptPredictions = 32

// predictions are the latest predictions for a node, each at an index that depends on the request. They keep only scores, because there
// are many: what a node gives is predicted again to explain it.
type predictions [keptPredictions]atomic.Pointer[prediction]

// prediction is the score of a node for a request. It is immutable.
type prediction struct {
	key   firstfit.Key
	score int64
}

// score returns the score of the node for the request, as the allocator predicts it.
func (p *resourceClaims) score(r *firstfit.Request, n *snapshot.Node) int64 {
	key := r.Key()
	slot := &(*p.predictions.Of(n))[key[0]%keptPredictions]
	if kept := slot.Load(); kept != nil && kept.key == key {
		return kept.score
	}
	next := &prediction{key: key, score: policy.NoOpinion}
	if results, err := p.predictor.Allocate(r, n); err == nil {
		if u := usageWith(n, devicesOf(results)); u.capacity > 0 {
			next.score = p.packing().Score(u.used, u.capacity)
		}
	}
	slot.Store(next)
	return next.score
}

// packing is how a node is scored alone.
func (p *resourceClaims) packing() policy.Packing {
	if p.ranker != nil {
		return policy.BinPack
	}
	return p.config.ScoringStrategy.Type
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
