package rules

import (
	"errors"
	"math"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"outboard.dev/outboard/snapshot"
)

// scalar is a value of an arithmetic expression: a number, a truth value or an error.
type scalar struct {
	number float64
	truth  bool
	err    error
}

// arithmetic evaluates an expression on a node, which is nil if the expression does not depend on one. CEL's interpreter
// allocates each number and takes many times as long, and rules over signals are numbers throughout.
type arithmetic func(c *cycle, n *snapshot.Node) scalar

// value returns the scalar as a value of CEL.
func (s scalar) value(isNumber bool) (ref.Val, error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case isNumber:
		return types.Double(s.number), nil
	}
	return types.Bool(s.truth), nil
}

// arithmeticCompiler compiles expressions whose values are doubles and truth values. Its results are CEL's.
type arithmeticCompiler struct {
	tree  *ast.AST
	parts map[int64]*part
}

// compile returns nil if the expression, apart from its parts, contains anything else than comparisons, logic and
// arithmetic of doubles.
func (a arithmeticCompiler) compile(e ast.Expr) arithmetic {
	if p := a.parts[e.ID()]; p != nil {
		if a.is(e, types.DoubleType) || a.is(e, types.BoolType) {
			return leaf(p)
		}
		return nil
	}
	switch e.Kind() {
	case ast.LiteralKind:
		return literal(e.AsLiteral())
	case ast.CallKind:
		return a.call(e)
	}
	return nil
}

func (a arithmeticCompiler) is(e ast.Expr, t *types.Type) bool {
	return a.tree.GetType(e.ID()).IsExactType(t)
}

func leaf(p *part) arithmetic {
	if p.class == ofSignal {
		if p.use.want == isThere {
			return func(c *cycle, n *snapshot.Node) scalar { return scalar{truth: c.current(p, n).Current()} }
		}
		return func(c *cycle, n *snapshot.Node) scalar {
			v := c.current(p, n)
			if !v.Current() {
				return scalar{err: errNoNumber}
			}
			return scalar{number: v.Number}
		}
	}
	return func(c *cycle, n *snapshot.Node) scalar { return scalarOf(c.value(p, n).Val) }
}

func literal(v ref.Val) arithmetic {
	switch v.(type) {
	case types.Double, types.Bool:
		s := scalarOf(v)
		return func(*cycle, *snapshot.Node) scalar { return s }
	}
	return nil
}

func scalarOf(v ref.Val) scalar {
	switch v := v.(type) {
	case types.Double:
		return scalar{number: float64(v)}
	case types.Bool:
		return scalar{truth: bool(v)}
	case *types.Err:
		return scalar{err: v}
	}
	return scalar{err: types.MaybeNoSuchOverloadErr(v).(*types.Err)}
}

func (a arithmeticCompiler) call(e ast.Expr) arithmetic {
	call := e.AsCall()
	args := call.Args()
	if call.IsMemberFunction() {
		return a.orValue(call)
	}
	switch name := call.FunctionName(); {
	case name == operators.LogicalNot && len(args) == 1:
		return negation(a.compile(args[0]))
	case name == operators.Conditional && len(args) == 3:
		return conditional(a.compile(args[0]), a.compile(args[1]), a.compile(args[2]))
	case len(args) != 2:
		return nil
	case name == operators.LogicalAnd:
		return logic(a.compile(args[0]), a.compile(args[1]), false)
	case name == operators.LogicalOr:
		return logic(a.compile(args[0]), a.compile(args[1]), true)
	default:
		return a.operation(name, args[0], args[1])
	}
}

// orValue compiles the number of a signal with a default, such as signals[?"load"].orValue(0.5).
func (a arithmeticCompiler) orValue(call ast.CallExpr) arithmetic {
	args := call.Args()
	p := a.parts[call.Target().ID()]
	if call.FunctionName() != "orValue" || len(args) != 1 || p == nil || p.class != ofSignal || args[0].Kind() != ast.LiteralKind {
		return nil
	}
	other := literal(args[0].AsLiteral())
	return func(c *cycle, n *snapshot.Node) scalar {
		if v := c.current(p, n); v.Current() {
			return scalar{number: v.Number}
		}
		return other(c, n)
	}
}

func negation(x arithmetic) arithmetic {
	if x == nil {
		return nil
	}
	return func(c *cycle, n *snapshot.Node) scalar {
		s := x(c, n)
		s.truth = !s.truth
		return s
	}
}

func conditional(test, yes, no arithmetic) arithmetic {
	if test == nil || yes == nil || no == nil {
		return nil
	}
	return func(c *cycle, n *snapshot.Node) scalar {
		switch s := test(c, n); {
		case s.err != nil:
			return s
		case s.truth:
			return yes(c, n)
		}
		return no(c, n)
	}
}

// logic is && or ||. One operand that decides is enough, even if the other fails.
func logic(x, y arithmetic, decides bool) arithmetic {
	if x == nil || y == nil {
		return nil
	}
	return func(c *cycle, n *snapshot.Node) scalar {
		l := x(c, n)
		if l.err == nil && l.truth == decides {
			return l
		}
		if r := y(c, n); l.err == nil || r.err == nil && r.truth == decides {
			return r
		}
		return l
	}
}

var errUnordered = errors.New("NaN values cannot be ordered")

func ordered(truth bool, x, y float64) scalar {
	if math.IsNaN(x) || math.IsNaN(y) {
		return scalar{err: errUnordered}
	}
	return scalar{truth: truth}
}

var operations = map[string]func(x, y float64) scalar{
	operators.Less:          func(x, y float64) scalar { return ordered(x < y, x, y) },
	operators.LessEquals:    func(x, y float64) scalar { return ordered(x <= y, x, y) },
	operators.Greater:       func(x, y float64) scalar { return ordered(x > y, x, y) },
	operators.GreaterEquals: func(x, y float64) scalar { return ordered(x >= y, x, y) },
	operators.Equals:        func(x, y float64) scalar { return scalar{truth: x == y} },
	operators.NotEquals:     func(x, y float64) scalar { return scalar{truth: x != y} },
	operators.Add:           func(x, y float64) scalar { return scalar{number: x + y} },
	operators.Subtract:      func(x, y float64) scalar { return scalar{number: x - y} },
	operators.Multiply:      func(x, y float64) scalar { return scalar{number: x * y} },
	operators.Divide:        func(x, y float64) scalar { return scalar{number: x / y} },
}

// operation compiles a comparison or an operation of two numbers. The first that is an error is the result.
func (a arithmeticCompiler) operation(name string, left, right ast.Expr) arithmetic {
	operate, x, y := operations[name], a.number(left), a.number(right)
	if operate == nil || x == nil || y == nil {
		return nil
	}
	if right.Kind() == ast.LiteralKind {
		number := y(nil, nil).number
		return func(c *cycle, n *snapshot.Node) scalar {
			l := x(c, n)
			if l.err != nil {
				return l
			}
			return operate(l.number, number)
		}
	}
	return func(c *cycle, n *snapshot.Node) scalar {
		l := x(c, n)
		if l.err != nil {
			return l
		}
		r := y(c, n)
		if r.err != nil {
			return r
		}
		return operate(l.number, r.number)
	}
}

// number compiles a double, or an integer that a double represents, with which doubles can be compared.
func (a arithmeticCompiler) number(e ast.Expr) arithmetic {
	if a.is(e, types.DoubleType) {
		return a.compile(e)
	}
	const exact = 1 << 53
	if e.Kind() == ast.LiteralKind {
		if i, ok := e.AsLiteral().(types.Int); ok && i >= -exact && i <= exact {
			return literal(types.Double(i))
		}
	}
	return nil
}
