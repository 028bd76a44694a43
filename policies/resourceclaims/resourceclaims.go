// Package resourceclaims is the policy ResourceClaims: scores for pods whose devices kube-scheduler
// allocates (Dynamic Resource Allocation). README.md in this folder is its documentation.
//
// A node is scored alone, by what is used of its devices (node.go) once the pod has the predicted
// ones (prediction.go). With LeastWaste, nodes are ranked with a strategy instead (ranking.go), for
// which free.go describes the devices of a node, and parts.go GPUs that are divided into
// partitions. units.go lists the devices and who has them, for the page and outboard gpus.
package resourceclaims

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/lru"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/internal/placement/strategy"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// resourceClaims is the policy.
type resourceClaims struct {
	config    Config
	predictor *firstfit.Predictor
	scoring   policy.ScoringStrategyType // for nodes that are scored alone
	listed    *snapshot.Fact[policy.NodeUnits]
	layouts   *lru.Cache       // of *layout, by name
	ranker    *strategy.Ranker // nil: each node is scored alone

	mu     sync.RWMutex
	scores map[scoreKey]int64
}

func newResourceClaims(config Config) *resourceClaims {
	p := &resourceClaims{
		config: config, predictor: firstfit.New(), layouts: lru.New(maxLayouts),
		scoring: config.ScoringStrategy.Type, scores: map[scoreKey]int64{},
	}
	p.listed = snapshot.NewFact(p.list)
	if p.scoring == LeastWaste {
		p.scoring = policy.BinPack
		p.ranker = strategy.New(strategy.Options{Strategy: strategy.LeastWaste(), Node: p.free, Shapes: p.shapesOf})
	}
	return p
}

func (p *resourceClaims) Inputs() policy.Inputs {
	return policy.Inputs{ScoreOnly: true, Devices: true, History: p.ranker != nil}
}

// Prepare implements policy.Policy. A request that is not known is no error: kube-scheduler does
// not place the pod then, or decides without a score.
func (p *resourceClaims) Prepare(_ context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	if len(pod.Spec.ResourceClaims) == 0 && p.ranker == nil {
		return nil, nil
	}
	request, err := p.predictor.Request(pod, view)
	if request == nil && err == nil && len(pod.Spec.ResourceClaims) > 0 {
		return nil, nil
	}
	if p.ranker != nil && err == nil {
		event := snapshot.PodEvent{Pod: pod}
		for _, claim := range request.Claims() {
			event.Claims = append(event.Claims, &claim.Spec)
		}
		if ranked, described := p.ranker.Rank(view, event); described {
			return &ranking{ranked, p, request}, nil
		}
	}
	return &cycle{policy: p, request: request, unknown: err}, nil
}

// Precompute implements policy.Precomputer. To read all nodes for the first time takes 0.1 ms for
// each, and 1 ms for one with partitions of GPUs.
func (p *resourceClaims) Precompute(view *snapshot.View) {
	if p.ranker != nil {
		p.ranker.Precompute(view)
		return
	}
	for n := range view.All() {
		p.predictor.ReadKind(n)
	}
}

// cycle is the policy prepared for one pod.
type cycle struct {
	policy  *resourceClaims
	request *firstfit.Request // nil: unknown says why
	unknown error
}

// Signature implements policy.Signature: what the claims request, and of which classes.
func (c *cycle) Signature() string {
	if c.request == nil {
		return ""
	}
	key := c.request.Key()
	return string(key[:])
}

// Score implements policy.Score: how much of the node's devices is used, or left, once the pod has
// the predicted ones.
func (c *cycle) Score(n *snapshot.Node) int64 {
	if c.request == nil {
		return policy.NoOpinion
	}
	return c.policy.score(c.request, n)
}
