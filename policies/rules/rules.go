// Package rules is the policy Rules: filters and scores written in CEL. README.md in
// this folder is its documentation.
package rules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// rules is the policy.
type rules struct {
	whenStale policy.WhenStale
	filters   []*filterRule // those that evictions cannot help first
	scores    []*scoreRule
	reads     []policy.Signal

	schema    *schema
	parts     []*part
	counts    [classes]int
	signals   []string // about nodes
	keyed     []string // signals about keys
	constants []value
	ofObject  *snapshot.ObjectFact[[]value]
	ofUsage   *snapshot.Fact[[]value]
	frames    sync.Pool
}

// rule is what filters and scores have in common.
type rule struct {
	name       string
	expression *expression
	when       *expression // nil: always
	onError    OnError
}

type filterRule struct {
	rule
	reason       *policy.Reason
	costExceeded *policy.Reason
	unresolvable bool
}

type scoreRule struct {
	rule
	weight float64
}

// arrange makes what Prepare and the nodes need, when all rules are compiled.
func (p *rules) arrange(c *compiler) {
	p.schema, p.parts, p.counts, p.signals, p.constants = c.schema, c.parts, c.counts, c.signals, c.constants
	p.ofObject = snapshot.NewObjectFact(func(node *corev1.Node) []value {
		return p.evaluate(ofObject, &base{node: p.schema.valueOf(reflect.ValueOf(node))})
	})
	p.ofUsage = snapshot.NewFact(func(n *snapshot.Node) []value {
		return p.evaluate(ofUsage, &base{node: p.schema.valueOf(reflect.ValueOf(n.Object)), usage: p.schema.usageOf(n)})
	})
	p.frames.New = func() any {
		return &frame{quantities: make([]resource.Quantity, len(p.parts))}
	}
}

func (p *rules) evaluate(kind class, vars *base) []value {
	values := make([]value, p.counts[kind])
	for _, part := range p.parts {
		if part.class == kind {
			values[part.index], _ = kept(part.program, vars)
		}
	}
	return values
}

// Inputs implements policy.InputReader.
func (p *rules) Inputs() policy.Inputs { return policy.Inputs{Signals: p.reads} }

// Prepare implements policy.Policy.
func (p *rules) Prepare(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	c := &cycle{policy: p, view: view, request: make([]value, p.counts[ofRequest])}
	for _, name := range p.signals {
		c.columns = append(c.columns, view.Column(name))
	}
	vars := p.requestVars(pod, view)
	for _, f := range p.filters {
		applies, cost, err := c.begin(ctx, &f.rule, vars)
		if err != nil {
			return nil, err
		}
		if applies && !c.passes(f, &cost) {
			c.filters = append(c.filters, plannedFilter{f, cost})
		}
	}
	for _, s := range p.scores {
		applies, cost, err := c.begin(ctx, &s.rule, vars)
		if err != nil {
			return nil, err
		}
		if applies {
			c.scores = append(c.scores, plannedScore{s, cost})
			c.weights += s.weight
		}
	}
	if err := c.plan(ctx); err != nil {
		return nil, err
	}
	switch {
	case len(c.filters) > 0 && len(c.scores) > 0:
		return &both{c}, nil
	case len(c.filters) > 0:
		return &filters{c}, nil
	case len(c.scores) > 0:
		return &scores{c}, nil
	}
	return nil, nil
}

func (p *rules) requestVars(pod *corev1.Pod, view *snapshot.View) *base {
	keyed := map[string]ref.Val{}
	for _, name := range p.keyed {
		keyed[name] = column{view.Column(name), p.schema}
	}
	return &base{
		pod:         p.schema.valueOf(reflect.ValueOf(pod)),
		podRequests: p.schema.NativeToValue(podRequests(pod)),
		keyed:       p.schema.NativeToValue(keyed),
	}
}

// cycle is the policy prepared for one pod.
type cycle struct {
	policy  *rules
	filters []plannedFilter
	scores  []plannedScore
	weights float64 // of scores
	request []value
	spent   uint64             // on request, in units of cost
	columns []*snapshot.Column // by signal
	view    *snapshot.View
	silent  []string // rules that have nothing to say about any node, and why
}

type plannedFilter struct {
	*filterRule
	cost plan
}

type plannedScore struct {
	*scoreRule
	cost plan
}

// begin evaluates what depends on the request alone, and says whether the rule is about
// the pod. If that costs too much to tell, it is, and exceeds what it may cost.
func (c *cycle) begin(ctx context.Context, r *rule, vars *base) (applies bool, cost plan, err error) {
	if err := ctx.Err(); err != nil {
		return false, plan{}, err
	}
	if r.when != nil {
		if err := c.compute(ctx, r.when, vars); err != nil {
			return false, plan{}, err
		}
		v, err := c.eval(r.when, new(plan), nil)
		switch {
		case err != nil && r.onError == Pass:
			c.silent = append(c.silent, fmt.Sprintf("rule %s is left out, because its when fails: %v", r.name, err))
			return false, plan{}, nil
		case exceeds(err):
			return true, plan{exceeded: true}, nil
		case err != nil:
			return false, plan{}, fmt.Errorf("rule %s cannot tell from the pod whether it is about it: %w", r.name, err)
		case v != types.True:
			c.silent = append(c.silent, fmt.Sprintf("rule %s is not about the pod", r.name))
			return false, plan{}, nil
		}
	}
	return true, plan{}, c.compute(ctx, r.expression, vars)
}

// passes says whether it is known already that all nodes satisfy the rule.
func (c *cycle) passes(f *filterRule, cost *plan) bool {
	whole := f.expression.whole
	if whole == nil || whole.class > ofRequest {
		return false
	}
	v, err := c.eval(f.expression, cost, nil)
	if err != nil || v != types.True {
		return false
	}
	c.silent = append(c.silent, fmt.Sprintf("rule %s is satisfied on all nodes", f.name))
	return true
}

// stale says whether a signal that the expression reads is not current, which is then
// what it fails from.
func (c *cycle) stale(e *expression, n *snapshot.Node) bool {
	for _, p := range e.parts {
		if p.class == ofSignal && !c.current(p, n).Current() {
			return true
		}
	}
	for _, r := range e.reads {
		if r.key != nil && !c.view.Column(r.signal).Get(*r.key).Current() {
			return true
		}
	}
	return false
}

func (c *cycle) filter(n *snapshot.Node) policy.Verdict {
	for i := range c.filters {
		if v := c.judge(&c.filters[i], n); !v.Fits() {
			return v
		}
	}
	return policy.Verdict{}
}

func (c *cycle) judge(f *plannedFilter, n *snapshot.Node) policy.Verdict {
	v, err := c.eval(f.expression, &f.cost, n)
	switch {
	case err == nil && v == types.True:
		return policy.Verdict{}
	case err == nil:
		return policy.Verdict{Reason: f.reason, Unresolvable: f.unresolvable}
	case exceeds(err) && f.onError == Reject:
		return policy.Verdict{Reason: f.costExceeded, Unresolvable: true}
	case !exceeds(err) && c.stale(f.expression, n):
		if c.policy.whenStale == policy.Reject {
			return policy.Verdict{Reason: signalStale, Unresolvable: true}
		}
		return policy.Verdict{}
	case f.onError == Pass:
		return policy.Verdict{}
	}
	return policy.Verdict{Reason: ruleFailed, Unresolvable: f.unresolvable}
}

// score is the mean of the rules, by weight. There is none if one of them has none: the
// mean of the others would be better or worse for a reason that nobody gave.
func (c *cycle) score(n *snapshot.Node) int64 {
	sum := 0.0
	for i := range c.scores {
		s := &c.scores[i]
		v, err := c.rate(s, n)
		if err != nil {
			return policy.NoOpinion
		}
		sum += v * s.weight
	}
	return int64(math.Round(sum / c.weights))
}

// rate is what the rule gives the node, 0 to MaxScore.
func (c *cycle) rate(s *plannedScore, n *snapshot.Node) (float64, error) {
	v, err := c.eval(s.expression, &s.cost, n)
	if err != nil {
		return 0, err
	}
	x := 0.0
	switch v := v.(type) {
	case types.Double:
		x = float64(v)
	case types.Int:
		x = float64(v)
	case types.Uint:
		x = float64(v)
	default:
		return 0, fmt.Errorf("is a %s", v.Type().TypeName())
	}
	if math.IsNaN(x) {
		return 0, errNaN
	}
	return max(0, min(float64(policy.MaxScore), x)), nil
}

var errNaN = errors.New("is not a number")

// The three kinds of Cycles.
type (
	filters struct{ *cycle }
	scores  struct{ *cycle }
	both    struct{ *cycle }
)

// Filter implements policy.Filter.
func (c *filters) Filter(n *snapshot.Node) policy.Verdict { return c.filter(n) }

// Filter implements policy.Filter.
func (c *both) Filter(n *snapshot.Node) policy.Verdict { return c.filter(n) }

// Score implements policy.Score.
func (c *scores) Score(n *snapshot.Node) int64 { return c.score(n) }

// Score implements policy.Score.
func (c *both) Score(n *snapshot.Node) int64 { return c.score(n) }
