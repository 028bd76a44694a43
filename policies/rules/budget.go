package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// The limits of the cost of rules for one pod. All are in units of cost and not in time, so that the verdict for a pod
// and a node is the same on any machine, and does not depend on earlier nodes.
const (
	// prepareCost bounds the cost of all parts that depend on the pod alone. The part that exceeds it can still cost up
	// to costLimit.
	prepareCost = 4 * costLimit
	// viewCost bounds the cost of filters on all nodes of the view together, and again that of scores, unless a rule
	// would get less than the last of the limits for a node.
	viewCost = 100 * costLimit
	// assumedNodes is the number of nodes without a cluster.
	assumedNodes = 5000
	// probes is on how many nodes a rule must exceed its limit to count as exceeding it on all nodes.
	probes = 4
)

// limit bounds one evaluation. The library's cost counter takes quadratic time in the length of a loop, so the steps of
// loops are bounded, too.
type limit struct {
	cost  uint64
	steps uint
}

// limits are the possible limits of a rule on one node. They are few, and differ a lot, so that limits seldom change
// when nodes come and go.
var limits = [...]limit{{costLimit, 2500}, {costLimit / 4, 1250}, {costLimit / 16, 625}, {costLimit / 64, 312}, {costLimit / 256, 156}}

// spentSteps interrupts an evaluation at its first check for an interruption, which comes after the steps of its limit.
var spentSteps = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errCostExceeded)
	return ctx
}()

// count evaluates a program within its limit, and returns its cost.
func count(program cel.Program, vars cel.Activation) (ref.Val, uint64, error) {
	v, details, err := program.ContextEval(spentSteps, vars)
	if cost := details.ActualCost(); cost != nil && !exceeds(err) {
		return v, *cost, err
	}
	return v, costLimit, err
}

// errCostExceeded is the result of an evaluation after the limit is used up.
var errCostExceeded = interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "cost limit exceeded for the pod"}

// exceeds reports whether an evaluation failed because of its cost.
func exceeds(err error) bool {
	cancelled, ok := errors.AsType[interpreter.EvalCancelledError](err)
	return ok && cancelled.Cause == interpreter.CostLimitExceeded
}

// planned is a rule that applies to the pod.
type planned struct {
	*rule
	// exceeded is true if the rule costs too much on all nodes.
	exceeded bool
	// limit is the index in limits of the limit of an evaluation.
	limit int
}

// result returns the result of the rule on the node, which is nil if the rule does not depend on one.
func (c *cycle) result(r *planned, n *snapshot.Node) (ref.Val, error) {
	if r.exceeded {
		return nil, errCostExceeded
	}
	return c.eval(r.expression, r.limit, n)
}

// counting returns the program that counts the cost, or nil if the expression cannot exceed the limit with this index
// on the node.
func (c *cycle) counting(e *expression, limit int, n *snapshot.Node) cel.Program {
	cost := limits[limit].cost
	if e.possibleCost <= cost || e.usualCost <= cost && c.isUsual(e, n) {
		return nil
	}
	return e.counting[limit]
}

// isUsual reports whether all parts of the expression have usual sizes for the node, or, if n is nil, all parts that
// depend on the pod alone.
func (c *cycle) isUsual(e *expression, n *snapshot.Node) bool {
	for _, p := range e.parts {
		if (p.class <= ofRequest || n != nil && p.class != ofSignal) && c.value(p, n).unusual {
			return false
		}
	}
	return true
}

// plan decides how the rules are evaluated on nodes. It drops a filter that would cost too much on all nodes if its
// failurePolicy is to ignore errors.
func (c *cycle) plan(ctx context.Context) error {
	for _, rules := range [][]planned{c.filters, c.scores} {
		c.share(rules)
		for i := range rules {
			if err := c.probe(ctx, &rules[i]); err != nil {
				return err
			}
		}
	}
	c.filters = slices.DeleteFunc(c.filters, func(f planned) bool {
		drop := f.exceeded && f.failurePolicy == policy.Ignore
		if drop {
			c.silent = append(c.silent, fmt.Sprintf("rule %s: ignored (%v)", f.name, errCostExceeded))
		}
		return drop
	})
	return nil
}

// share divides the cost among the rules. Rules with low costs get what they may need, and the others equal shares of
// the rest.
func (c *cycle) share(rules []planned) {
	nodes := uint64(c.view.Len())
	if nodes == 0 {
		nodes = assumedNodes
	}
	left := viewCost / nodes
	cheapest := make([]*planned, len(rules))
	for i := range rules {
		cheapest[i] = &rules[i]
	}
	slices.SortStableFunc(cheapest, func(a, b *planned) int { return cmp.Compare(a.expression.usualCost, b.expression.usualCost) })
	for i, r := range cheapest {
		if r.expression.whole != nil || r.exceeded {
			continue
		}
		part := left / uint64(len(rules)-i)
		for r.limit < len(limits)-1 && limits[r.limit].cost > part {
			r.limit++
		}
		cost := limits[r.limit].cost
		if c.isUsual(r.expression, nil) {
			cost = min(cost, r.expression.usualCost)
		}
		left -= min(left, cost)
	}
}

// probe finds out whether the rule exceeds its limit, on nodes spread over the view. Without probes, a hostile pod
// would cost the limit on each of thousands of nodes.
func (c *cycle) probe(ctx context.Context, r *planned) error {
	if r.expression.whole != nil || r.exceeded {
		return nil
	}
	exceeded, rows := false, c.view.Rows()
	for i := range probes {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		n := c.firstNode(i*rows/probes, rows)
		if n == nil {
			continue
		}
		if c.counting(r.expression, r.limit, n) == nil {
			return nil
		}
		if _, err := c.eval(r.expression, r.limit, n); !exceeds(err) {
			return nil
		}
		exceeded = true
	}
	r.exceeded = exceeded
	return nil
}

// firstNode returns the first node from the row on.
func (c *cycle) firstNode(row, rows int) *snapshot.Node {
	for ; row < rows; row++ {
		if n := c.view.At(row); n != nil {
			return n
		}
	}
	return nil
}

// compute evaluates the parts that depend on the pod alone.
func (c *cycle) compute(ctx context.Context, e *expression, vars *activation) error {
	for _, p := range e.parts {
		if p.class != ofRequest {
			continue
		}
		if c.spent >= prepareCost {
			c.request[p.index] = value{Val: types.WrapErr(errCostExceeded)}
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		v, cost := kept(p.program, vars)
		c.request[p.index] = v
		c.spent += cost
	}
	return nil
}
