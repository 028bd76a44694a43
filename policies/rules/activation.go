package rules

import (
	"errors"
	"strconv"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"outboard.dev/outboard/snapshot"
)

// base is the variables that an author of rules knows; nil where a class of parts does
// not see one.
type base struct{ pod, podRequests, keyed, node, usage ref.Val }

// ResolveName implements cel.Activation.
func (b *base) ResolveName(name string) (any, bool) {
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
func (b *base) Parent() cel.Activation { return nil }

// value is what became of a part; an error is a value, too.
type value struct {
	ref.Val
	unusual bool // of unusual size
}

// value is the part's value for the node, which is nil if the part is not about one. It
// is shared.
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

// frame is what the rest of an expression sees for one node: its parts. It belongs to
// one evaluation at a time.
type frame struct {
	cycle      *cycle
	node       *snapshot.Node
	quantities []resource.Quantity // by number of part
}

// ResolveName implements cel.Activation.
func (f *frame) ResolveName(name string) (any, bool) {
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
		own := &f.quantities[number]
		*own = q.DeepCopy() // which allocates only what int64 cannot hold
		return apiservercel.Quantity{Quantity: own}, true
	}
	return v, true
}

// Parent implements cel.Activation.
func (f *frame) Parent() cel.Activation { return nil }

var (
	errNoNumber = errors.New("the signal has no current number for the node")
	noNumber    = types.WrapErr(errNoNumber)
)

// read is what the expression gets to see of the number.
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
	case u.want == compared:
		return types.Bool(u.compare(v.Number))
	}
	return types.Double(v.Number)
}

func (u *signalUse) compare(number float64) bool {
	switch u.test {
	case operators.Less:
		return number < u.bound
	case operators.LessEquals:
		return number <= u.bound
	case operators.Greater:
		return number > u.bound
	}
	return number >= u.bound
}

// eval evaluates the expression for the node, which is nil if it is not about one.
func (c *cycle) eval(e *expression, cost *plan, n *snapshot.Node) (ref.Val, error) {
	if cost.exceeded {
		return nil, errCostExceeded
	}
	if e.whole != nil {
		v := c.value(e.whole, n).Val
		if err, ok := v.(*types.Err); ok {
			return nil, err
		}
		return v, nil
	}
	f := c.policy.frames.Get().(*frame)
	f.cycle, f.node = c, n
	var v ref.Val
	var err error
	if program := c.counting(e, cost, n); program != nil {
		v, _, err = count(program, f)
	} else {
		v, _, err = e.program.Eval(f)
	}
	f.cycle, f.node = nil, nil
	c.policy.frames.Put(f)
	return v, err
}

// kept evaluates a part, whose value will be used by many at once, and tells what that cost.
func kept(program cel.Program, vars cel.Activation) (value, uint64) {
	v, cost, err := count(program, vars)
	if err != nil {
		return value{Val: types.WrapErr(err)}, cost
	}
	switch q := v.(type) {
	case apiservercel.Quantity:
		return value{Val: copied(q.Quantity)}, cost
	case *apiservercel.Quantity: // what its own functions return
		return value{Val: copied(q.Quantity)}, cost
	}
	return value{v, !isUsual(v)}, cost
}

func copied(q *resource.Quantity) ref.Val {
	own := q.DeepCopy()
	return apiservercel.Quantity{Quantity: &own}
}
