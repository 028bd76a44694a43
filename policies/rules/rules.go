package rules

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

type rules struct {
	whenStale policy.UnknownAction
	filters   []*rule // first those for which preemption does not help
	scores    []*rule
	reads     []policy.Signal
	keyed     []string // signals about keys
	warnings  field.ErrorList

	compiled *compiler
	ofObject *snapshot.ObjectFact[[]ref.Val]
	ofUsage  *snapshot.Fact[[]ref.Val]
	pool     sync.Pool
}

type rule struct {
	name          string
	expression    *expression
	conditions    []*expression // all must be true
	failurePolicy policy.FailurePolicy

	// Of a filter.
	reason       *policy.Reason
	costExceeded *policy.Reason
	unresolvable bool

	weight float64 // of a score
}

// arrange prepares the data for Prepare and for nodes, after all rules are compiled.
func (p *rules) arrange(c *compiler) {
	p.compiled = c
	p.ofObject = snapshot.NewObjectFact(func(node *corev1.Node) []ref.Val {
		return p.evaluate(ofObject, map[string]any{
			nodeVar: c.schema.valueOf(reflect.ValueOf(node)),
		})
	})
	p.ofUsage = snapshot.NewFact(func(n *snapshot.Node) []ref.Val {
		return p.evaluate(ofUsage, map[string]any{
			nodeVar:  c.schema.valueOf(reflect.ValueOf(n.Object)),
			usageVar: c.schema.valueOf(reflect.ValueOf(usageOf(n))),
		})
	})
	p.pool.New = func() any { return new(nodeVariables) }
}

// evaluate returns the values of the parts of a class.
func (p *rules) evaluate(class class, vars map[string]any) []ref.Val {
	values := make([]ref.Val, p.compiled.counts[class])
	for _, part := range p.compiled.parts {
		if part.class == class {
			values[part.index] = part.evaluate(context.Background(), vars)
		}
	}
	return values
}

func (p *rules) Inputs() policy.Inputs {
	return policy.Inputs{
		Signals: p.reads, ScoreOnly: len(p.filters) == 0, FilterOnly: len(p.scores) == 0,
		CountsPods: slices.ContainsFunc(p.filters, func(r *rule) bool {
			return r.expression.deps&onUsage != 0
		}),
	}
}

func (p *rules) Warnings() field.ErrorList { return p.warnings }

type cycle struct {
	policy  *rules
	view    *snapshot.View
	filters []*rule // those that apply to the pod, and whose results may differ between nodes
	scores  []*rule
	weights float64            // of scores
	request []ref.Val          // by the index of a part that depends on the request
	signals []*snapshot.Signal // by the index of a signal
	silent  []string           // rules without an effect on any node, with the reason
}

func (p *rules) Prepare(
	ctx context.Context, pod *corev1.Pod, view *snapshot.View,
) (policy.Cycle, error) {
	c, vars := p.begin(pod, view)
	var err error
	if c.filters, err = c.applying(ctx, p.filters, vars); err != nil {
		return nil, err
	}
	if c.scores, err = c.applying(ctx, p.scores, vars); err != nil {
		return nil, err
	}
	for _, s := range c.scores {
		c.weights += s.weight
	}
	text, signed := c.sign()
	switch filter, score := len(c.filters) > 0, len(c.scores) > 0; {
	case filter && score && signed:
		return &signedBoth{both{c}, text}, nil
	case filter && score:
		return &both{c}, nil
	case filter && signed:
		return &signedFilters{filters{c}, text}, nil
	case filter:
		return &filters{c}, nil
	case score && signed:
		return &signedScores{scores{c}, text}, nil
	case score:
		return &scores{c}, nil
	}
	return nil, nil
}

// The kinds of Cycles.
type (
	filters struct{ *cycle }
	scores  struct{ *cycle }
	both    struct{ *cycle }

	signedFilters struct {
		filters
		signature
	}
	signedScores struct {
		scores
		signature
	}
	signedBoth struct {
		both
		signature
	}
)

func (c filters) Filter(n *snapshot.Node) policy.Verdict { return c.filter(n) }

func (c both) Filter(n *snapshot.Node) policy.Verdict { return c.filter(n) }

func (c scores) Score(n *snapshot.Node) int64 { return c.score(n) }

func (c both) Score(n *snapshot.Node) int64 { return c.score(n) }

// begin returns a cycle without rules, and the variables of what depends on the request.
func (p *rules) begin(pod *corev1.Pod, view *snapshot.View) (c *cycle, vars map[string]any) {
	c = &cycle{policy: p, view: view, request: make([]ref.Val, p.compiled.counts[ofRequest])}
	for _, name := range p.compiled.signals {
		c.signals = append(c.signals, view.Signal(name))
	}
	schema, keyed := p.compiled.schema, map[string]ref.Val{}
	for _, name := range p.keyed {
		keyed[name] = p.keyedSignal(view.Signal(name))
	}
	return c, map[string]any{
		podVar:      schema.valueOf(reflect.ValueOf(pod)),
		requestsVar: schema.NativeToValue(request(pod)),
		keyedVar:    schema.NativeToValue(keyed),
	}
}

// applying returns the rules that apply to the pod and whose results may differ between nodes.
func (c *cycle) applying(ctx context.Context, rules []*rule, vars map[string]any) ([]*rule, error) {
	apply := make([]*rule, 0, len(rules))
	for _, r := range rules {
		applies, err := c.applies(ctx, r, vars)
		if err != nil {
			return nil, err
		}
		if !applies {
			continue
		}
		if err := c.compute(ctx, r.expression, vars); err != nil {
			return nil, err
		}
		whole := r.expression.whole
		known := whole != nil && whole.class <= ofRequest
		if known && r.reason != nil && c.value(whole, nil) == types.True {
			c.silence(r, "true on all nodes")
			continue
		}
		apply = append(apply, r)
	}
	return apply, nil
}

// applies reports whether the rule applies to the pod: as in Kubernetes, one condition that is
// false decides, whether or not others fail.
func (c *cycle) applies(ctx context.Context, r *rule, vars map[string]any) (bool, error) {
	var failed error
	name := "" // of the first condition that fails
	for _, m := range r.conditions {
		if err := c.compute(ctx, m, vars); err != nil {
			return false, err
		}
		v, err := c.eval(m, nil)
		switch {
		case err != nil && failed == nil:
			failed, name = err, m.name
		case err == nil && v != types.True:
			c.silence(r, "does not apply (match condition %s is false)", m.name)
			return false, nil
		}
	}
	switch {
	case failed == nil:
		return true, nil
	case r.failurePolicy == policy.Ignore:
		c.silence(r, "ignored (match condition %s: %v)", name, failed)
		return false, nil
	}
	return false, fmt.Errorf("rule %s: its match condition %s cannot be evaluated: %w",
		r.name, name, failed)
}

// silence notes why the rule has no effect on any node.
func (c *cycle) silence(r *rule, format string, args ...any) {
	c.silent = append(c.silent, fmt.Sprintf("rule %s: "+format, append([]any{r.name}, args...)...))
}

// compute evaluates the parts that depend on the request alone.
func (c *cycle) compute(ctx context.Context, e *expression, vars map[string]any) error {
	for _, p := range e.parts {
		if p.class == ofRequest {
			c.request[p.index] = p.evaluate(ctx, vars)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// sign returns a signature of everything on which the results for a node depend, except the node:
// which rules apply; the values of the parts of their expressions that depend on the pod, of which
// expressions read nothing else; and the values of all signals. ok is false if a value has none.
func (c *cycle) sign() (s signature, ok bool) {
	var text []byte
	var parts []int
	for _, rules := range [][]*rule{c.filters, c.scores} {
		text = binary.AppendUvarint(text, uint64(len(rules)))
		for _, r := range rules {
			text = appendText(text, r.name)
			for _, p := range r.expression.parts {
				if p.class == ofRequest {
					parts = append(parts, p.index)
				}
			}
		}
	}
	for _, name := range append(slices.Clip(c.policy.compiled.signals), c.policy.keyed...) {
		text = binary.AppendUvarint(text, c.view.Signal(name).Version())
	}
	slices.Sort(parts)
	for _, index := range slices.Compact(parts) {
		if text, ok = appendValue(text, c.request[index]); !ok || len(text) > maxSigned {
			return "", false
		}
	}
	return signature(text), true
}

func (c *cycle) filter(n *snapshot.Node) policy.Verdict {
	for _, f := range c.filters {
		if v := c.verdict(f, n); !v.Fits() {
			return v
		}
	}
	return policy.Verdict{}
}

func (c *cycle) verdict(f *rule, n *snapshot.Node) policy.Verdict {
	holds, err := c.eval(f.expression, n)
	switch {
	case err == nil && holds == types.True:
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

// stale reports whether a signal that the expression reads is not current, which explains its
// error.
func (c *cycle) stale(e *expression, n *snapshot.Node) bool {
	return slices.ContainsFunc(e.parts, func(p *part) bool { return c.isStale(p, n) }) ||
		slices.ContainsFunc(e.reads, func(r read) bool {
			return r.key != nil && !c.view.Signal(r.signal).Get(*r.key).Current()
		})
}

// isStale reports whether the part is a signal that is not current for the node.
func (c *cycle) isStale(p *part, n *snapshot.Node) bool {
	return p.class == ofSignal && !c.signals[p.index].Of(n).Current()
}

// score returns the mean of the rules' scores, by weight. If one of them has no score, there is
// none, because the mean of the others would be better or worse for no reason.
func (c *cycle) score(n *snapshot.Node) int64 {
	sum := 0.0
	for _, s := range c.scores {
		v, err := c.rate(s, n)
		if err != nil {
			return policy.NoOpinion
		}
		sum += v * s.weight
	}
	return int64(math.Round(sum / c.weights))
}

func (c *cycle) rate(s *rule, n *snapshot.Node) (float64, error) {
	v, err := c.eval(s.expression, n)
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
	}
	if math.IsNaN(x) {
		return 0, errors.New("is not a number")
	}
	return max(0, min(float64(policy.MaxScore), x)), nil
}

// eval evaluates the expression for the node, which is nil if the expression does not depend on
// one.
func (c *cycle) eval(e *expression, n *snapshot.Node) (ref.Val, error) {
	if e.whole != nil {
		v := c.value(e.whole, n)
		if err, ok := v.(*types.Err); ok {
			return nil, err
		}
		return v, nil
	}
	vars := c.policy.pool.Get().(*nodeVariables)
	vars.cycle, vars.node = c, n
	v, _, err := e.program.Eval(vars)
	vars.cycle, vars.node = nil, nil
	c.policy.pool.Put(vars)
	return v, err
}

// nodeVariables holds the variables of an expression for one node: its parts. One evaluation at a
// time uses it.
type nodeVariables struct {
	cycle *cycle
	node  *snapshot.Node
}

func (v *nodeVariables) ResolveName(name string) (any, bool) {
	if name == "" || name[0] != '@' {
		return nil, false
	}
	parts := v.cycle.policy.compiled.parts
	number, err := strconv.Atoi(name[1:])
	if err != nil || number < 0 || number >= len(parts) {
		return nil, false
	}
	value := v.cycle.value(parts[number], v.node)
	if q, ok := value.(apiservercel.Quantity); ok {
		return copied(q.Quantity), true // functions write to it
	}
	return value, true
}

func (v *nodeVariables) Parent() cel.Activation { return nil }

// value returns the part's value for the node, which is nil if the part does not depend on one. The
// value is shared.
func (c *cycle) value(p *part, n *snapshot.Node) ref.Val {
	switch p.class {
	case constant:
		return c.policy.compiled.constants[p.index]
	case ofRequest:
		return c.request[p.index]
	case ofObject:
		return (*c.policy.ofObject.Of(n))[p.index]
	case ofUsage:
		return (*c.policy.ofUsage.Of(n))[p.index]
	}
	v := c.signals[p.index].Of(n)
	switch {
	case p.want == isThere:
		return types.Bool(v.Current())
	case p.want == optional && v.Current():
		return types.OptionalOf(types.Double(v.Number))
	case p.want == optional:
		return types.OptionalNone
	case !v.Current():
		return noNumber
	}
	return types.Double(v.Number)
}

var noNumber = types.NewErr("the signal has no current number for the node")
