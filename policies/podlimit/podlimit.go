// Package podlimit is the policy PodLimit: a maximum number of matching pods on one node. README.md
// in this folder is its documentation.
package podlimit

import (
	"context"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

// podLimit is the policy.
type podLimit struct {
	selector   labels.Selector
	namespaces []string // ordered; empty when each namespace has its own limit
	all        bool     // namespaces includes all namespaces
	max        int64
	maxFrom    *fields.From
	maxFromPod *fields.From
	each       *Each // nil: all matching pods count together
	usage      *snapshot.Fact[usage]
}

func newPodLimit(config Config, selector labels.Selector) *podLimit {
	p := &podLimit{
		selector:   selector,
		namespaces: slices.Sorted(slices.Values(config.Namespaces)),
		all:        slices.Contains(config.Namespaces, allNamespaces),
		max:        int64(config.Max),
		maxFrom:    config.MaxFrom,
		maxFromPod: config.MaxFromPod,
		each:       config.Each,
	}
	p.usage = snapshot.NewFact(p.usageOf)
	return p
}

// Inputs implements policy.InputReader.
func (p *podLimit) Inputs() policy.Inputs {
	return policy.Inputs{CountsPods: true}
}

// Prepare implements policy.Policy.
func (p *podLimit) Prepare(_ context.Context, pod *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
	g, ok := p.request(pod)
	if !ok {
		return nil, nil
	}
	own, err := p.ownLimit(pod)
	if err != nil {
		return nil, err
	}
	return &cycle{policy: p, group: g, own: own}, nil
}

// cycle is the policy prepared for one pod with a limit.
type cycle struct {
	policy *podLimit
	group  group
	own    int64 // the limit that the pod declares
}

// Signature implements policy.Signature.
func (c *cycle) Signature() string {
	return c.group.namespace + "/" + c.group.value + "/" + strconv.FormatInt(c.own, 10)
}

// Filter implements policy.Filter.
func (c *cycle) Filter(n *snapshot.Node) policy.Verdict {
	f := c.policy.usage.Of(n)
	if f.max < 0 {
		return policy.Verdict{Reason: invalidNodeLimit, Unresolvable: true}
	}
	limit := min(f.max, c.own)
	left := limit - f.count[c.group]
	if left >= 1 {
		return policy.Verdict{}
	}
	return policy.Verdict{Reason: limitReached, Unresolvable: limit == 0, Have: left, Want: 1}
}

// Score implements policy.Score: the larger the share of its limit that a node has left, the
// better.
func (c *cycle) Score(n *snapshot.Node) int64 {
	f := c.policy.usage.Of(n)
	limit := min(f.max, c.own)
	if limit <= 0 {
		return 0
	}
	return max(0, policy.MaxScore*(limit-f.count[c.group])/limit)
}
