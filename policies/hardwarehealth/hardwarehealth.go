// Package hardwarehealth is the policy HardwareHealth: nodes that are ready, but degraded.
// README.md in this folder is its documentation.
package hardwarehealth

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resources "k8s.io/component-helpers/resource"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// hardwareHealth is the policy.
type hardwareHealth struct {
	config  Config
	objects *snapshot.ObjectFact[[]bool] // which rules without a signal match the node
}

func newHardwareHealth(config Config) *hardwareHealth {
	p := &hardwareHealth{config: config}
	p.objects = snapshot.NewObjectFact(func(n *corev1.Node) []bool {
		speaks := make([]bool, len(config.Rules))
		for i := range config.Rules {
			speaks[i] = config.Rules[i].matches(n)
		}
		return speaks
	})
	return p
}

// indicates reports whether the number indicates degraded hardware.
func (s *Signal) indicates(number float64) bool {
	switch {
	case s.Above != nil:
		return number > *s.Above
	case s.Below != nil:
		return number < *s.Below
	}
	return number != 0
}

func (p *hardwareHealth) Inputs() policy.Inputs { return p.config.Inputs() }

func (c *Config) Inputs() policy.Inputs {
	var signals []policy.Signal
	rejects, scores := c.effects()
	for i, r := range c.Rules {
		if r.Signal != nil {
			signals = append(signals, policy.Signal{Field: fmt.Sprintf("rules[%d].signal.name", i), Name: r.Signal.Name, About: policy.AboutNodes})
		}
	}
	return policy.Inputs{Signals: signals, ScoreOnly: !rejects, FilterOnly: !scores}
}

// effects reports whether rules can reject nodes, and whether they can lower scores.
func (c *Config) effects() (reject, score bool) {
	for _, r := range c.Rules {
		reject = reject || r.Reject || r.Signal != nil && c.WhenStale == policy.Reject
		score = score || r.Penalty != nil
	}
	return reject, score
}

func (p *hardwareHealth) Prepare(_ context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	c := &cycle{policy: p}
	tolerated := p.request(pod)
	requests := resources.PodRequests(pod, resources.PodResourcesOptions{})
	for i := range p.config.Rules {
		r := &p.config.Rules[i]
		if !r.applies(requests) {
			continue
		}
		if slices.Contains(tolerated, r.Name) || slices.Contains(tolerated, all) {
			c.tolerated = append(c.tolerated, r.Name)
			continue
		}
		applied := appliedRule{Rule: r, at: i}
		if r.Signal != nil {
			applied.signal = view.Signal(r.Signal.Name)
		}
		c.rules = append(c.rules, applied)
	}
	if len(c.rules) == 0 && len(c.tolerated) == 0 {
		return nil, nil
	}
	switch rejects, scores := p.config.effects(); {
	case !scores:
		return filtering{c}, nil
	case !rejects:
		return scoring{c}, nil
	}
	return both{scoring{c}}, nil
}

// filtering, scoring and both are cycles of policies that reject nodes, lower their scores, or do
// both.
type (
	filtering struct{ *cycle }
	scoring   struct{ *cycle }
	both      struct{ scoring }
)

// cycle is the policy prepared for one pod.
type cycle struct {
	policy    *hardwareHealth
	rules     []appliedRule // those that apply to the pod
	tolerated []string      // the names of those that the pod tolerates
}

// appliedRule is a rule that applies to the pod.
type appliedRule struct {
	*Rule
	at     int              // index in the configuration
	signal *snapshot.Signal // the signal of the rule; nil if the rule or the view has none
}

// state is the result of a rule for a node.
type state int

const (
	healthy state = iota
	degraded
	unknown // the signal has no current value
)

func (r *appliedRule) evaluate(n *snapshot.Node, objects []bool) state {
	if r.Signal == nil {
		if objects[r.at] {
			return degraded
		}
		return healthy
	}
	switch v := r.signal.Of(n); {
	case !v.Current():
		return unknown
	case r.Signal.indicates(v.Number):
		return degraded
	}
	return healthy
}

// Signature implements policy.Signature: the rules that apply to the pod, and the values of their
// signals. Of the pod, nothing else is read, and everything else is the Node object's.
func (c *cycle) Signature() string {
	text := make([]byte, 0, 4*len(c.rules))
	for i := range c.rules {
		text = binary.AppendUvarint(text, uint64(c.rules[i].at))
		text = binary.AppendUvarint(text, c.rules[i].signal.Version())
	}
	return string(text)
}

func (c filtering) Filter(n *snapshot.Node) policy.Verdict { return c.filter(n) }

func (c both) Filter(n *snapshot.Node) policy.Verdict { return c.filter(n) }

func (c *cycle) filter(n *snapshot.Node) policy.Verdict {
	objects := *c.policy.objects.Of(n)
	var verdict policy.Verdict
	for i := range c.rules {
		r := &c.rules[i]
		switch s := r.evaluate(n, objects); {
		case s == degraded && r.Reject:
			return policy.Verdict{Reason: r.reason(), Unresolvable: true}
		case s == unknown && c.policy.config.WhenStale == policy.Reject:
			verdict = policy.Verdict{Reason: signalStale, Unresolvable: true}
		}
	}
	return verdict
}

func (r *Rule) reason() *policy.Reason {
	switch {
	case r.NodeCondition != nil:
		return degradedCondition
	case r.Signal != nil:
		return degradedSignal
	}
	return degradedLabel
}

// Score implements policy.Score: MaxScore minus the penalties, at least 0. If something is unknown
// that may count against the node, the score is below 0, and as far below NoOpinion as it would be
// above 0.
func (c scoring) Score(n *snapshot.Node) int64 {
	objects := *c.policy.objects.Of(n)
	score, complete := policy.MaxScore, true
	for i := range c.rules {
		switch c.rules[i].evaluate(n, objects) {
		case degraded:
			if penalty := c.rules[i].Penalty; penalty != nil { // without one, the rule rejects
				score -= *penalty
			}
		case unknown:
			complete = false
		}
	}
	if score = max(0, score); !complete {
		return policy.NoOpinion - score
	}
	return score
}

// NormalizeScore implements policy.NormalizeScore. A node with unknown data gets the mean of the
// other scores, but no more than its known penalties leave.
func (c scoring) NormalizeScore(scores []int64) {
	var sum, known int64
	for _, s := range scores {
		if s >= 0 {
			sum, known = sum+s, known+1
		}
	}
	mean := policy.MaxScore / 2
	if known > 0 {
		mean = sum / known
	}
	for i, s := range scores {
		if s < 0 {
			scores[i] = min(mean, policy.NoOpinion-s)
		}
	}
}
