package rules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"

	"github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// rules is the policy.
type rules struct {
	whenStale policy.UnknownAction
	filters   []*rule // first those for which preemption does not help
	scores    []*rule
	reads     []policy.Signal
	warnings  field.ErrorList

	schema      *schema
	parts       []*part
	counts      [classes]int
	signals     []string // about nodes
	keyed       []string // signals about keys
	constants   []value
	ofObject    *snapshot.ObjectFact[[]value]
	ofUsage     *snapshot.Fact[[]value]
	activations sync.Pool
}

// rule is a filter or a score.
type rule struct {
	name          string
	expression    *expression
	conditions    []condition // all must be true
	failurePolicy policy.FailurePolicy

	// Of a filter.
	reason       *policy.Reason
	costExceeded *policy.Reason
	unresolvable bool

	weight float64 // of a score
}

// condition is a match condition of a rule.
type condition struct {
	name       string
	expression *expression
}

// arrange prepares the data for Prepare and for nodes, after all rules are compiled.
func (p *rules) arrange(c *compiler) {
	p.schema, p.parts, p.counts, p.signals, p.constants = c.schema, c.parts, c.counts, c.signals, c.constants
	p.ofObject = snapshot.NewObjectFact(func(node *corev1.Node) []value {
		return p.evaluate(ofObject, &activation{node: p.schema.valueOf(reflect.ValueOf(node))})
	})
	p.ofUsage = snapshot.NewFact(func(n *snapshot.Node) []value {
		return p.evaluate(ofUsage, &activation{node: p.schema.valueOf(reflect.ValueOf(n.Object)), usage: p.schema.usageOf(n)})
	})
	p.activations.New = func() any { return new(partActivation) }
}

func (p *rules) evaluate(kind class, vars *activation) []value {
	values := make([]value, p.counts[kind])
	for _, part := range p.parts {
		if part.class == kind {
			values[part.index], _ = kept(part.program, vars)
		}
	}
	return values
}

// Inputs implements policy.InputReader.
func (p *rules) Inputs() policy.Inputs {
	counts := slices.ContainsFunc(p.filters, func(r *rule) bool { return r.expression.deps&onUsage != 0 })
	return policy.Inputs{Signals: p.reads, ScoreOnly: len(p.filters) == 0, FilterOnly: len(p.scores) == 0, CountsPods: counts}
}

// Warnings implements policy.Warner.
func (p *rules) Warnings() field.ErrorList { return p.warnings }

// Prepare implements policy.Policy.
func (p *rules) Prepare(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	c := &cycle{policy: p, view: view, request: make([]value, p.counts[ofRequest])}
	for _, name := range p.signals {
		c.signals = append(c.signals, view.Signal(name))
	}
	vars := p.request(pod, view)
	var err error
	if c.filters, err = c.begin(ctx, p.filters, vars); err != nil {
		return nil, err
	}
	if c.scores, err = c.begin(ctx, p.scores, vars); err != nil {
		return nil, err
	}
	if err := c.plan(ctx); err != nil {
		return nil, err
	}
	for _, s := range c.scores {
		c.weights += s.weight
	}
	text, ok := c.sign()
	switch {
	case len(c.filters) > 0 && len(c.scores) > 0 && ok:
		return &signedBoth{both{c}, text}, nil
	case len(c.filters) > 0 && len(c.scores) > 0:
		return &both{c}, nil
	case len(c.filters) > 0 && ok:
		return &signedFilters{filters{c}, text}, nil
	case len(c.filters) > 0:
		return &filters{c}, nil
	case len(c.scores) > 0 && ok:
		return &signedScores{scores{c}, text}, nil
	case len(c.scores) > 0:
		return &scores{c}, nil
	}
	return nil, nil
}

// cycle is the policy prepared for one pod.
type cycle struct {
	policy  *rules
	filters []planned
	scores  []planned
	weights float64 // of scores
	request []value
	spent   uint64             // read on request, in units of cost
	signals []*snapshot.Signal // by signal
	view    *snapshot.View
	silent  []string // rules without an effect on any node, with the reason
}

// stale reports whether a signal that the expression reads is not current, which explains its
// error.
func (c *cycle) stale(e *expression, n *snapshot.Node) bool {
	for _, p := range e.parts {
		if p.class == ofSignal && !c.current(p, n).Current() {
			return true
		}
	}
	for _, r := range e.reads {
		if r.key != nil && !c.view.Signal(r.signal).Get(*r.key).Current() {
			return true
		}
	}
	return false
}

func (c *cycle) filter(n *snapshot.Node) policy.Verdict {
	for i := range c.filters {
		if v := c.evaluate(&c.filters[i], n); !v.Fits() {
			return v
		}
	}
	return policy.Verdict{}
}

func (c *cycle) evaluate(f *planned, n *snapshot.Node) policy.Verdict {
	holds, err := c.holds(f, n)
	switch {
	case err == nil && holds:
		return policy.Verdict{}
	case err == nil:
		return policy.Verdict{Reason: f.reason, Unresolvable: f.unresolvable}
	case exceeds(err) && f.failurePolicy == policy.Fail:
		return policy.Verdict{Reason: f.costExceeded, Unresolvable: true}
	case !exceeds(err) && c.stale(f.expression, n):
		if c.policy.whenStale == policy.Reject {
			return policy.Verdict{Reason: signalStale, Unresolvable: true}
		}
		return policy.Verdict{}
	case f.failurePolicy == policy.Ignore:
		return policy.Verdict{}
	}
	return policy.Verdict{Reason: ruleFailed, Unresolvable: f.unresolvable}
}

// score returns the mean of the rules' scores, by weight. If one of them has no score, there is
// none, because the mean of the others would be better or worse for no reason.
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

// rate returns the rule's score for the node, 0 to MaxScore.
func (c *cycle) rate(s *planned, n *snapshot.Node) (float64, error) {
	x, err := c.number(s, n)
	if err != nil {
		return 0, err
	}
	if math.IsNaN(x) {
		return 0, errNaN
	}
	return max(0, min(float64(policy.MaxScore), x)), nil
}

func (c *cycle) holds(f *planned, n *snapshot.Node) (bool, error) {
	if f.expression.arithmetic != nil && !f.exceeded {
		v := f.expression.arithmetic(c, n)
		return v.truth, v.err
	}
	v, err := c.result(f, n)
	return v == types.True, err
}

func (c *cycle) number(s *planned, n *snapshot.Node) (float64, error) {
	if s.expression.arithmetic != nil && s.expression.isNumber && !s.exceeded {
		v := s.expression.arithmetic(c, n)
		return v.number, v.err
	}
	v, err := c.result(s, n)
	if err != nil {
		return 0, err
	}
	switch v := v.(type) {
	case types.Double:
		return float64(v), nil
	case types.Int:
		return float64(v), nil
	case types.Uint:
		return float64(v), nil
	}
	return 0, fmt.Errorf("is a %s", v.Type().TypeName())
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
