// Package cost is the policy Cost: the cheapest node. README.md in this folder is
// its documentation.
package cost

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Raw scores are in billionths of the unit of prices, verdicts in millionths.
const (
	billionths = 1e9
	millionths = 1e6
)

// mostCounted is the largest raw score, and the largest number in a verdict. Higher costs count as
// this.
const mostCounted = math.MaxInt64 / 2

// cost is the policy.
type cost struct {
	config   Config
	sunkCost bool
	hosts    *snapshot.ObjectFact[host]
	used     *snapshot.Fact[bool]
}

func newCost(config Config) *cost {
	p := &cost{config: config, used: snapshot.NewFact(isUsed)}
	p.sunkCost = config.Inputs().CountsPods
	p.hosts = snapshot.NewObjectFact(p.hostOf)
	return p
}

func (p *cost) Inputs() policy.Inputs { return p.config.Inputs() }

func (c *Config) Inputs() policy.Inputs {
	var signals []policy.Signal
	for i, s := range c.Prices {
		if s.Signal == "" {
			continue
		}
		about := policy.AboutNodes
		if len(s.KeyLabels) > 0 {
			about = policy.AboutKeys
		}
		signals = append(signals, policy.Signal{Field: fmt.Sprintf("prices[%d].signal", i), Name: s.Signal, About: about})
	}
	sunk := c.ScoringStrategy.SunkCost
	return policy.Inputs{Signals: signals, CountsPods: sunk != nil && *sunk}
}

func (p *cost) Prepare(_ context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	c := &cycle{policy: p, refusal: p.refusal(pod), signals: make([]*snapshot.Signal, len(p.config.Prices)), requests: request(pod)}
	for i, s := range p.config.Prices {
		if s.Signal != "" {
			c.signals[i] = view.Signal(s.Signal)
		}
	}
	return c, nil
}

// cycle is the policy prepared for one pod.
type cycle struct {
	policy   *cost
	refusal  string             // why the pod must not run on spot nodes; "" if it may
	signals  []*snapshot.Signal // by source
	requests []amount           // in order of resource; at least one, all positive
}

// Signature implements policy.Signature: whether the pod may run on spot nodes, the values of the
// signals and, if the pod's share of a node counts, its requests. The rest is the node's, and
// NormalizeScore reads only scores.
func (c *cycle) Signature() string {
	text := []byte{0}
	if c.refusal != "" {
		text[0] = 1
	}
	for _, s := range c.signals {
		text = binary.AppendUvarint(text, s.Version())
	}
	if c.policy.config.ScoringStrategy.Type == PodCost {
		for _, a := range c.requests {
			text = append(binary.AppendUvarint(text, uint64(len(a.resource))), a.resource...)
			text = binary.AppendUvarint(text, math.Float64bits(a.n))
		}
	}
	return string(text)
}

func (c *cycle) Filter(n *snapshot.Node) policy.Verdict {
	config, h := &c.policy.config, c.policy.hosts.Of(n)
	if h.spot && c.refusal != "" {
		return policy.Verdict{Reason: spotNode, Unresolvable: true}
	}
	p := c.price(n, h)
	switch {
	case p.source >= 0:
		if costs := c.costs(h, p); config.MaxPrice != nil && costs > *config.MaxPrice {
			return policy.Verdict{Reason: tooExpensive, Unresolvable: true, Have: count(*config.MaxPrice, millionths), Want: count(costs, millionths)}
		}
	case p.stale && config.WhenStale == policy.Reject:
		return policy.Verdict{Reason: signalStale, Unresolvable: true}
	case config.WhenStale == policy.Reject:
		return policy.Verdict{Reason: priceUnknown, Unresolvable: true}
	}
	return policy.Verdict{}
}

// costs returns the cost of the node by the scoring strategy.
func (c *cycle) costs(h *host, p price) float64 {
	if c.policy.config.ScoringStrategy.Type == NodeCost {
		return p.amount
	}
	share, _ := c.share(h)
	return p.amount * share
}

// share returns the share of the node that the pod takes: the largest one over the node's
// resources, and that resource. Resources that the node does not report do not count; if it reports
// none, the share is 1.
func (c *cycle) share(h *host) (share float64, of corev1.ResourceName) {
	larger := func(n, there float64, resource corev1.ResourceName) {
		if part := n / there; part > share || part == share && resource < of {
			share, of = part, resource
		}
	}
	if len(c.requests) <= len(h.allocatable) {
		for _, a := range c.requests {
			if there, ok := h.allocatable[a.resource]; ok {
				larger(a.n, there, a.resource)
			}
		}
	} else { // a pod may request thousands
		for resource, there := range h.allocatable {
			if at, ok := slices.BinarySearchFunc(c.requests, resource, compareResource); ok {
				larger(c.requests[at].n, there, resource)
			}
		}
	}
	if of == "" {
		return 1, ""
	}
	return min(1, share), of
}

func (c *cycle) Score(n *snapshot.Node) int64 {
	h := c.policy.hosts.Of(n)
	p := c.price(n, h)
	switch {
	case p.source < 0:
		return policy.NoOpinion
	case c.policy.sunkCost && !*c.policy.used.Of(n):
		return count(p.amount, billionths)
	}
	return count(c.costs(h, p), billionths)
}

// count converts a cost to parts of the unit of prices, rounded down.
func count(costs, parts float64) int64 {
	if n := costs * parts; n < mostCounted {
		return int64(n)
	}
	return mostCounted
}

// NormalizeScore implements policy.NormalizeScore: a node that costs twice as much as the cheapest
// one has half its score.
func (c *cycle) NormalizeScore(scores []int64) {
	cheapest := int64(mostCounted)
	for _, s := range scores {
		if s != policy.NoOpinion {
			cheapest = min(cheapest, s)
		}
	}
	for i, s := range scores {
		switch {
		case s == policy.NoOpinion:
		case s == cheapest:
			scores[i] = policy.MaxScore
		default:
			high, low := bits.Mul64(uint64(policy.MaxScore), uint64(cheapest))
			score, _ := bits.Div64(high, low, uint64(s))
			scores[i] = int64(score)
		}
	}
}
