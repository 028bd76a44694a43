package rules

import (
	"fmt"
	"math"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// class is what a part of an expression depends on, which determines how often it is computed.
type class int

const (
	constant  class = iota // once
	ofRequest              // the pod, or signals about keys: once a request
	ofObject               // the Node object: once for each version of it
	ofUsage                // the pods on the node, too: once for each state of the node
	ofSignal               // a signal about nodes: read each time
	mixed                  // several of these: each time
	classes   = mixed
)

// deps is a set of variables.
type deps uint8

const (
	onPod deps = 1 << iota
	onKeyed
	onNode
	onUsage
	onSignals
)

var variables = map[string]deps{
	podVar: onPod, requestsVar: onPod, keyedVar: onKeyed, nodeVar: onNode, usageVar: onUsage, signalsVar: onSignals,
}

func (d deps) class() class {
	switch {
	case d == 0:
		return constant
	case d&^(onPod|onKeyed) == 0:
		return ofRequest
	case d == onNode:
		return ofObject
	case d&^(onNode|onUsage) == 0:
		return ofUsage
	case d == onSignals:
		return ofSignal
	}
	return mixed
}

// presence is how an expression reads a signal.
type presence int

const (
	number   presence = iota // the number, or an error
	isThere                  // whether there is a number
	optional                 // an optional number
)

// read is a use of a signal. Key is the key of a signal with keys, if the expression contains it.
type read struct {
	signal string
	keyed  bool
	key    *string
}

// problem is an error at an expression.
type problem struct {
	id      int64
	message string
}

// analysis holds the results for the expressions in an AST, by id.
type analysis struct {
	tree     *ast.AST
	scope    []string // variables of the comprehensions around
	deps     map[int64]deps
	local    map[int64]bool // depends on a variable of a comprehension around it
	signals  map[int64]signalUse
	reads    []read
	lookups  []lookup
	problems []problem
}

type signalUse struct {
	name string
	want presence
}

func analyze(tree *ast.AST) *analysis {
	a := &analysis{tree: tree, deps: map[int64]deps{}, local: map[int64]bool{}, signals: map[int64]signalUse{}}
	a.visit(tree.Expr())
	return a
}

// noLocal is more than any depth of a scope.
const noLocal = math.MaxInt

// visit returns what the expression depends on, and the outermost comprehension
// variable that it uses.
func (a *analysis) visit(e ast.Expr) (d deps, outermost int) {
	depth := len(a.scope)
	outermost = noLocal
	add := func(child ast.Expr) {
		cd, co := a.visit(child)
		d, outermost = d|cd, min(outermost, co)
	}
	a.labelUse(e)
	if signal, ok := a.signalUse(e); ok {
		d = signal
	} else {
		switch e.Kind() {
		case ast.IdentKind:
			d, outermost = a.ident(e)
		case ast.ComprehensionKind:
			c := e.AsComprehension()
			add(c.IterRange())
			add(c.AccuInit())
			a.scope = append(a.scope, c.IterVar(), c.IterVar2(), c.AccuVar())
			add(c.LoopCondition())
			add(c.LoopStep())
			add(c.Result())
			a.scope = a.scope[:depth]
			if outermost >= depth {
				outermost = noLocal
			}
		case ast.StructKind:
			a.problem(e, "objects cannot be made in a rule")
		default:
			for _, child := range children(e) {
				add(child)
			}
		}
	}
	a.deps[e.ID()], a.local[e.ID()] = d, outermost != noLocal
	return d, outermost
}

func (a *analysis) problem(e ast.Expr, message string) {
	a.problems = append(a.problems, problem{e.ID(), message})
}

func (a *analysis) isLocal(name string) bool { return slices.Contains(a.scope, name) }

func (a *analysis) ident(e ast.Expr) (deps, int) {
	name := e.AsIdent()
	if a.isLocal(name) {
		// The innermost one counts.
		for i := len(a.scope) - 1; ; i-- {
			if a.scope[i] == name {
				return 0, i
			}
		}
	}
	if name == signalsVar || name == keyedVar {
		a.problem(e, fmt.Sprintf("%s must be followed by the name of a signal, as in %s[\"name\"]", name, name))
	}
	return variables[name], noLocal
}

// signalUse recognizes what names a signal: signals.x, signals["x"], signals[?"x"],
// signals.?x, has(signals.x), "x" in signals, and the same of keyed.
func (a *analysis) signalUse(e ast.Expr) (deps, bool) {
	operand, name, want, ok := access(e)
	if !ok {
		return 0, false
	}
	if operand.Kind() == ast.IdentKind && !a.isLocal(operand.AsIdent()) {
		switch operand.AsIdent() {
		case signalsVar:
			a.reads = append(a.reads, read{signal: name})
			a.signals[e.ID()] = signalUse{name: name, want: want}
			return onSignals, true
		case keyedVar:
			a.reads = append(a.reads, read{signal: name, keyed: true})
			return onKeyed, true
		}
	}
	if ident, signal, _, ok := access(operand); ok && ident.Kind() == ast.IdentKind && ident.AsIdent() == keyedVar && !a.isLocal(keyedVar) {
		a.reads = append(a.reads, read{signal: signal, keyed: true, key: &name})
	}
	return 0, false
}

// access decomposes an expression that looks up a field or an element. ok is true if its name is in
// the text of the expression; operand is nil if the expression looks up nothing.
func access(e ast.Expr) (operand ast.Expr, name string, want presence, ok bool) {
	switch e.Kind() {
	case ast.SelectKind:
		s := e.AsSelect()
		if s.IsTestOnly() {
			want = isThere
		}
		return s.Operand(), s.FieldName(), want, true
	case ast.CallKind:
		call := e.AsCall()
		args := call.Args()
		if len(args) != 2 {
			return nil, "", 0, false
		}
		operand, key := args[0], args[1]
		switch call.FunctionName() {
		case operators.Index:
		case operators.OptIndex, operators.OptSelect:
			want = optional
		case operators.In:
			operand, key, want = key, operand, isThere
		default:
			return nil, "", 0, false
		}
		if key.Kind() == ast.LiteralKind {
			if text, ok := key.AsLiteral().(types.String); ok {
				return operand, string(text), want, true
			}
		}
		return operand, "", want, false
	}
	return nil, "", 0, false
}

// isDynamic reports whether the type of a value is known only when it is evaluated.
func isDynamic(t *types.Type) bool {
	return t.Kind() == types.DynKind || t.Kind() == types.OpaqueKind && slices.ContainsFunc(t.Parameters(), isDynamic)
}

// children returns the expressions directly inside one. Rules make no objects.
func children(e ast.Expr) []ast.Expr {
	var all []ast.Expr
	switch e.Kind() {
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			all = append(all, call.Target())
		}
		all = append(all, call.Args()...)
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		all = append(all, c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result())
	case ast.ListKind:
		all = append(all, e.AsList().Elements()...)
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			all = append(all, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
	case ast.SelectKind:
		all = append(all, e.AsSelect().Operand())
	}
	return all
}

// walk visits the expressions from the outermost on, and continues inside one if into returns true.
func walk(e ast.Expr, into func(ast.Expr) bool) {
	if into(e) {
		for _, child := range children(e) {
			walk(child, into)
		}
	}
}

// separable returns the class of an expression that can be computed separately, or mixed.
func (a *analysis) separable(e ast.Expr) class {
	if a.local[e.ID()] || a.hidesQuantity(e) {
		return mixed
	}
	c := a.deps[e.ID()].class()
	switch c {
	case constant:
		// Separate literals would save nothing.
		if e.Kind() != ast.CallKind && e.Kind() != ast.ComprehensionKind {
			return mixed
		}
	case ofSignal:
		if _, ok := a.signals[e.ID()]; !ok {
			return mixed
		}
	}
	return c
}

// hidesQuantity reports whether the value of an expression would contain quantities that cannot be
// copied. Quantities change when they are used, so each use needs its own copy. Objects copy them
// themselves.
func (a *analysis) hidesQuantity(e ast.Expr) bool {
	t := a.tree.GetType(e.ID())
	return !t.IsExactType(apiservercel.QuantityType) && hasQuantity(t) && e.Kind() != ast.SelectKind && e.Kind() != ast.IdentKind
}

func hasQuantity(t *types.Type) bool {
	return t.IsExactType(apiservercel.QuantityType) || slices.ContainsFunc(t.Parameters(), hasQuantity)
}

// extract is an optimizer that keeps only one expression of a tree.
type extract struct{ id int64 }

// Optimize implements cel.ASTOptimizer.
func (x extract) Optimize(ctx *cel.OptimizerContext, tree *ast.AST) *ast.AST {
	found := tree.Expr()
	walk(tree.Expr(), func(e ast.Expr) bool {
		if e.ID() == x.id {
			found = e
		}
		return true
	})
	return ctx.NewAST(found)
}

// replace is an optimizer that replaces expressions with variables.
type replace struct{ parts map[int64]*part }

// Optimize implements cel.ASTOptimizer.
func (r replace) Optimize(ctx *cel.OptimizerContext, tree *ast.AST) *ast.AST {
	var vars []cel.EnvOption
	walk(tree.Expr(), func(e ast.Expr) bool {
		p, ok := r.parts[e.ID()]
		if ok {
			vars = append(vars, cel.Variable(p.name, tree.GetType(e.ID())))
			ctx.UpdateExpr(e, ctx.NewIdent(p.name))
		}
		return !ok
	})
	if err := ctx.ExtendEnv(vars...); err != nil {
		ctx.ReportErrorAtID(tree.Expr().ID(), "%v", err)
	}
	return tree
}
