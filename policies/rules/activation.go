package rules

import (
	"errors"
	"strconv"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"outboard.dev/outboard/snapshot"
)

// activation holds the variables of expressions. A nil variable is not visible to the class of parts that is evaluated.
type activation struct{ pod, podRequests, keyed, node, usage ref.Val }

// ResolveName implements cel.Activation.
func (b *activation) ResolveName(name string) (any, bool) {
	var v ref.Val
	switch name {
	case podVar:
		v = b.pod
	case requestsVar:
		v = b.podRequests
	case keyedVar:
		v = b.keyed
	case nodeVar:
		v = b.node
	case usageVar:
		v = b.usage
	}
	return v, v != nil
}

// Parent implements cel.Activation.
func (b *activation) Parent() cel.Activation { return nil }

// value is the result of a part; an error is a value, too.
type value struct {
	ref.Val
	unusual bool // of unusual size
}

// value returns the part's value for the node, which is nil if the part does not depend on one. The value is shared.
func (c *cycle) value(p *part, n *snapshot.Node) value {
	switch p.class {
	case constant:
		return c.policy.constants[p.index]
	case ofRequest:
		return c.request[p.index]
	case ofObject:
		return (*c.policy.ofObject.Of(n))[p.index]
	case ofUsage:
		return (*c.policy.ofUsage.Of(n))[p.index]
	}
	return value{Val: p.use.read(c.current(p, n))}
}

// partActivation holds the variables of what remains of an expression: its parts, for one node. Only one evaluation at a time
// uses it.
type partActivation struct {
	cycle *cycle
	node  *snapshot.Node
}

// ResolveName implements cel.Activation.
func (f *partActivation) ResolveName(name string) (any, bool) {
	if name == "" || name[0] != '@' {
		return nil, false
	}
	parts := f.cycle.policy.parts
	number, err := strconv.Atoi(name[1:])
	if err != nil || number < 0 || number >= len(parts) {
		return nil, false
	}
	v := f.cycle.value(parts[number], f.node).Val
	if q, ok := v.(apiservercel.Quantity); ok {
		return copied(q.Quantity), true // functions write to it
	}
	return v, true
}

// Parent implements cel.Activation.
func (f *partActivation) Parent() cel.Activation { return nil }

var (
	errNoNumber = errors.New("the signal has no current number for the node")
	noNumber    = types.WrapErr(errNoNumber)
)

// read returns the expression's value for the number.
func (u *signalUse) read(v snapshot.Value) ref.Val {
	switch {
	case u.want == isThere:
		return types.Bool(v.Current())
	case u.want == optional && v.Current():
		return types.OptionalOf(types.Double(v.Number))
	case u.want == optional:
		return types.OptionalNone
	case !v.Current():
		return noNumber
	}
	return types.Double(v.Number)
}

// eval evaluates the expression for the node, which is nil if the expression does not depend on one. It fails if the cost
// exceeds the limit with the index.
func (c *cycle) eval(e *expression, limit int, n *snapshot.Node) (ref.Val, error) {
	if e.arithmetic != nil {
		return e.arithmetic(c, n).value(e.isNumber)
	}
	if e.whole != nil {
		v := c.value(e.whole, n).Val
		if err, ok := v.(*types.Err); ok {
			return nil, err
		}
		return v, nil
	}
	f := c.policy.activations.Get().(*partActivation)
	f.cycle, f.node = c, n
	var v ref.Val
	var err error
	if program := c.counting(e, limit, n); program != nil {
		v, _, err = count(program, f)
	} else {
		v, _, err = e.program.Eval(f)
	}
	f.cycle, f.node = nil, nil
	c.policy.activations.Put(f)
	return v, err
}

// kept evaluates a part, whose value is shared, and returns its cost.
func kept(program cel.Program, vars cel.Activation) (value, uint64) {
	v, cost, err := count(program, vars)
	if err != nil {
		return value{Val: types.WrapErr(err)}, cost
	}
	switch q := v.(type) {
	case apiservercel.Quantity:
		return value{Val: copied(q.Quantity)}, cost
	case *apiservercel.Quantity: // the result of the policy's own functions
		return value{Val: copied(q.Quantity)}, cost
	}
	return value{v, !isUsual(v)}, cost
}

func copied(q *resource.Quantity) ref.Val {
	own := q.DeepCopy()
	return apiservercel.Quantity{Quantity: &own}
}
