// Package resourceclaims is the policy ResourceClaims: scores for pods whose devices kube-scheduler allocates (Dynamic Resource
// Allocation). README.md in this folder is its documentation.
//
// A node is scored alone, by what is used of its devices once the pod has the predicted ones (node.go). kube-scheduler's allocator predicts
// them (prediction.go), or arithmetic, which is faster, and gives the same scores for most nodes and requests:
//
//	kinds.go       which devices are alike for what selectors read
//	plans.go       which devices each part of a request can get, by what the allocator gives it of one device of each kind
//	arithmetic.go  the first of these devices that are free
//	counted.go     what devices use of counters, for the arithmetic
//
// With LeastWaste, nodes are ranked with a strategy instead (ranking.go), for which room.go describes the devices of a node, and parts.go
// GPUs that are divided into partitions. units.go lists the devices and who has them, for the page and outboard gpus.
package resourceclaims

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/internal/placement/strategy"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// resourceClaims is the policy.
type resourceClaims struct {
	config      Config
	predictor   *firstfit.Predictor
	predictions *snapshot.Fact[*predictions]
	devices     *snapshot.Fact[*nodeDevices]
	listed      *snapshot.Fact[policy.NodeUnits]
	sets        attributeSets
	plans       planCache
	layouts     *layouts
	ranker      *strategy.Ranker // nil: each node is scored alone
}

func newResourceClaims(config Config) *resourceClaims {
	p := &resourceClaims{
		config: config, predictor: firstfit.New(), layouts: new(layouts), devices: snapshot.NewFact(new(countedNodes).newNodeDevices),
		predictions: snapshot.NewFact(func(*snapshot.Node) *predictions { return new(predictions) }),
	}
	p.sets.of(nil) // what most claims need
	p.listed = snapshot.NewFact(p.list)
	if config.ScoringStrategy.Type == LeastWaste {
		p.ranker = strategy.New(strategy.Options{Strategy: strategy.LeastWaste(), Node: p.room, Shapes: p.shapesOf})
	}
	return p
}

// Inputs implements policy.InputReader.
func (p *resourceClaims) Inputs() policy.Inputs {
	return policy.Inputs{ScoreOnly: true, Devices: true, History: p.ranker != nil}
}

// Prepare implements policy.Policy. A request that is not known is no error: kube-scheduler does not place the pod then, or decides without
// a score.
func (p *resourceClaims) Prepare(_ context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	if len(pod.Spec.ResourceClaims) == 0 && p.ranker == nil {
		return nil, nil
	}
	request, err := p.predictor.Request(pod, view)
	if request == nil && err == nil && len(pod.Spec.ResourceClaims) > 0 {
		return nil, nil
	}
	if p.ranker != nil && err == nil {
		if r := p.rank(pod, view, request); r != nil {
			return r, nil
		}
	}
	c := &cycle{policy: p, request: request, unknown: err}
	if request != nil {
		c.plans = p.plansOf(request)
	}
	return c, nil
}

// Precompute implements policy.Precomputer. To read all nodes for the first time takes tens of milliseconds.
func (p *resourceClaims) Precompute(view *snapshot.View) {
	if p.ranker != nil {
		p.ranker.Precompute(view)
		return
	}
	sets := p.sets.all()
	for n := range view.All() {
		d := *p.devices.Of(n)
		for _, a := range sets {
			d.nodeTypeOf(a, n)
		}
	}
}

// cycle is the policy prepared for one pod.
type cycle struct {
	policy  *resourceClaims
	request *firstfit.Request // nil: unknown says why
	unknown error
	plans   *plans // nil: the allocator predicts each node
}

// Signature implements policy.Signature: what the claims request, and of which classes.
func (c *cycle) Signature() string {
	if c.request == nil {
		return ""
	}
	key := c.request.Key()
	return string(key[:])
}

// Score implements policy.Score: how much of the node's devices is used, or left, once the pod has the predicted ones.
func (c *cycle) Score(n *snapshot.Node) int64 {
	if c.request == nil {
		return policy.NoOpinion
	}
	if c.plans != nil {
		if score, ok := c.plans.score(n); ok {
			return score
		}
	}
	return c.policy.score(c.request, n)
}
