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

// frame is what the rest of an expression sees for one node: its parts. It belongs to
// one evaluation at a time.
type frame struct {
	policy     *rules
	request    []ref.Val
	object     *[]ref.Val
	usage      *[]ref.Val
	columns    []*snapshot.Column
	node       *snapshot.Node
	quantities []resource.Quantity // by number of part
}

// ResolveName implements cel.Activation.
func (f *frame) ResolveName(name string) (any, bool) {
	if name == "" || name[0] != '@' {
		return nil, false
	}
	number, err := strconv.Atoi(name[1:])
	if err != nil || number < 0 || number >= len(f.policy.parts) {
		return nil, false
	}
	return f.value(f.policy.parts[number]), true
}

// Parent implements cel.Activation.
func (f *frame) Parent() cel.Activation { return nil }

// value is a part's value; an error is a value, too.
func (f *frame) value(p *part) ref.Val {
	var v ref.Val
	switch p.class {
	case constant:
		v = f.policy.constants[p.index]
	case ofRequest:
		v = f.request[p.index]
	case ofObject:
		v = (*f.object)[p.index]
	case ofUsage:
		v = (*f.usage)[p.index]
	case ofSignal:
		return f.signal(p)
	}
	if q, ok := v.(apiservercel.Quantity); ok {
		own := &f.quantities[p.number]
		*own = q.DeepCopy() // which allocates only what int64 cannot hold
		return apiservercel.Quantity{Quantity: own}
	}
	return v
}

var (
	errNoNumber = errors.New("the signal has no current number for the node")
	noNumber    = types.WrapErr(errNoNumber)
)

func (f *frame) signal(p *part) ref.Val {
	v := f.columns[p.signal].Of(f.node)
	switch p.use.want {
	case isThere:
		return types.Bool(v.Current())
	case optional:
		if !v.Current() {
			return types.OptionalNone
		}
		return types.OptionalOf(types.Double(v.Number))
	}
	switch {
	case !v.Current():
		return noNumber
	case p.use.want == compared:
		return types.Bool(p.use.compare(v.Number))
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

// eval evaluates the expression.
func (f *frame) eval(e *expression) (ref.Val, error) {
	if e.whole != nil {
		v := f.value(e.whole)
		if err, ok := v.(*types.Err); ok {
			return nil, err
		}
		return v, nil
	}
	v, _, err := e.program.Eval(f)
	return v, err
}

// kept evaluates a part, whose value will be used by many at once.
func kept(program cel.Program, vars cel.Activation) ref.Val {
	v, _, err := program.Eval(vars)
	if err != nil {
		return types.WrapErr(err)
	}
	switch q := v.(type) {
	case apiservercel.Quantity:
		return copied(q.Quantity)
	case *apiservercel.Quantity: // what its own functions return
		return copied(q.Quantity)
	}
	return v
}

func copied(q *resource.Quantity) ref.Val {
	own := q.DeepCopy()
	return apiservercel.Quantity{Quantity: &own}
}
