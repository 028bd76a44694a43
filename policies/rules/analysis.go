package rules

import (
	"fmt"
	"math"
	"slices"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// analysis holds what the expressions in a tree read, by their id.
type analysis struct {
	tree     *ast.AST
	scope    []string // variables of the comprehensions around
	deps     map[int64]deps
	local    map[int64]bool // depends on a variable of a comprehension around it
	signals  map[int64]read // about nodes
	reads    []read         // of all signals
	lookups  []lookup
	problems []common.Error
}

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
	podVar: onPod, requestsVar: onPod, keyedVar: onKeyed,
	nodeVar: onNode, usageVar: onUsage, signalsVar: onSignals,
}

// read is a use of a signal. Key is the key of a signal about keys, if it is in the text of the
// expression.
type read struct {
	signal string
	keyed  bool
	key    *string
	want   presence
}

// lookup is a use of a label or an annotation whose key is in the text of the expression.
type lookup struct {
	object, field, key string   // such as pod, labels and team
	want               presence // with direct, it is an error if there is no such label
	at                 common.Location
}

func (l lookup) label() [3]string { return [3]string{l.object, l.field, l.key} }

// presence is how an expression reads an element, such as the number of a signal.
type presence int

const (
	direct   presence = iota // the element, or an error
	isThere                  // whether there is one
	optional                 // an optional value
)

func analyze(tree *ast.AST) *analysis {
	a := &analysis{
		tree: tree, deps: map[int64]deps{}, local: map[int64]bool{}, signals: map[int64]read{},
	}
	a.visit(tree.Expr())
	return a
}

// noLocal is more than any depth of a scope.
const noLocal = math.MaxInt

// visit returns what the expression depends on, and the depth of the outermost comprehension
// variable that it uses.
func (a *analysis) visit(e ast.Expr) (d deps, outermost int) {
	depth := len(a.scope)
	outermost = noLocal
	add := func(child ast.Expr) {
		cd, co := a.visit(child)
		d, outermost = d|cd, min(outermost, co)
	}
	a.lookup(e)
	if signal := a.signal(e); signal != 0 {
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
			a.problem(a.at(e), "objects cannot be made in a rule")
		default:
			for _, child := range children(e) {
				add(child)
			}
		}
	}
	a.deps[e.ID()], a.local[e.ID()] = d, outermost != noLocal
	return d, outermost
}

func (a *analysis) ident(e ast.Expr) (d deps, outermost int) {
	name := e.AsIdent()
	for i, local := range slices.Backward(a.scope) {
		if local == name {
			return 0, i
		}
	}
	if name == signalsVar || name == keyedVar {
		a.problem(a.at(e),
			"%s must be followed by the name of a signal, as in %[1]s[\"name\"]", name)
	}
	return variables[name], noLocal
}

// signal returns the variable of an expression that names a signal: signals.x, signals["x"],
// signals[?"x"], signals.?x, has(signals.x), "x" in signals, and the same of keyed. It returns 0
// for others.
func (a *analysis) signal(e ast.Expr) deps {
	operand, name, want, ok := access(e)
	switch {
	case !ok:
	case a.is(operand, signalsVar):
		use := read{signal: name, want: want}
		a.reads, a.signals[e.ID()] = append(a.reads, use), use
		return onSignals
	case a.is(operand, keyedVar):
		a.reads = append(a.reads, read{signal: name, keyed: true})
		return onKeyed
	default:
		if keyed, signal, _, ok := access(operand); ok && a.is(keyed, keyedVar) {
			a.reads = append(a.reads, read{signal: signal, keyed: true, key: &name})
		}
	}
	return 0
}

func (a *analysis) is(e ast.Expr, variable string) bool {
	return e.Kind() == ast.IdentKind && e.AsIdent() == variable &&
		!slices.Contains(a.scope, variable)
}

// lookup notes the expression if it uses a label or an annotation.
func (a *analysis) lookup(e ast.Expr) {
	operand, key, want, ok := access(e)
	if !ok {
		return
	}
	if a.tree.GetType(operand.ID()).TypeName() == types.OptionalType.TypeName() {
		want = optional // a key of an optional value need not exist
	}
	for _, object := range []string{podVar, nodeVar} {
		for _, field := range []string{"labels", "annotations"} {
			if a.isField(operand, field, "metadata", object) {
				a.lookups = append(a.lookups, lookup{object, field, key, want, a.at(e)})
			}
		}
	}
}

// isField reports whether the expression is a field, whose names are from the innermost one to the
// variable. The field may be optional, and have a default.
func (a *analysis) isField(e ast.Expr, names ...string) bool {
	if len(names) == 1 {
		return a.is(e, names[0])
	}
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == "orValue" {
		e = e.AsCall().Target()
	}
	operand, name, _, ok := access(e)
	return ok && name == names[0] && a.isField(operand, names[1:]...)
}

func (a *analysis) problem(at common.Location, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	a.problems = append(a.problems, common.Error{Location: at, Message: message})
}

func (a *analysis) at(e ast.Expr) common.Location {
	return a.tree.SourceInfo().GetStartLocation(e.ID())
}

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

// separable returns the class of an expression that can be computed separately, or mixed.
func (a *analysis) separable(e ast.Expr) class {
	c := a.deps[e.ID()].class()
	_, isSignal := a.signals[e.ID()]
	switch {
	case a.local[e.ID()], a.hidesQuantity(e):
		return mixed
	case c == constant && e.Kind() != ast.CallKind && e.Kind() != ast.ComprehensionKind:
		return mixed // separate literals would save nothing
	case c == ofSignal && !isSignal:
		return mixed
	}
	return c
}

// hidesQuantity reports whether the value of an expression would contain quantities that cannot be
// copied. Quantities change when they are used, so each use needs its own copy. Objects copy them
// themselves.
func (a *analysis) hidesQuantity(e ast.Expr) bool {
	t := a.tree.GetType(e.ID())
	ofObject := e.Kind() == ast.SelectKind || e.Kind() == ast.IdentKind
	return !ofObject && !t.IsExactType(apiservercel.QuantityType) && hasQuantity(t)
}

func hasQuantity(t *types.Type) bool {
	return t.IsExactType(apiservercel.QuantityType) ||
		slices.ContainsFunc(t.Parameters(), hasQuantity)
}

// isDynamic reports whether the type of a value is known only when it is evaluated.
func isDynamic(t *types.Type) bool {
	return t.Kind() == types.DynKind ||
		t.Kind() == types.OpaqueKind && slices.ContainsFunc(t.Parameters(), isDynamic)
}

// access decomposes an expression that looks up a field or an element. ok is true if its name is in
// the text of the expression; operand is nil if the expression looks up nothing.
func access(e ast.Expr) (operand ast.Expr, name string, want presence, ok bool) {
	if e.Kind() == ast.SelectKind {
		s := e.AsSelect()
		if s.IsTestOnly() {
			want = isThere
		}
		return s.Operand(), s.FieldName(), want, true
	}
	if e.Kind() != ast.CallKind || len(e.AsCall().Args()) != 2 {
		return nil, "", 0, false
	}
	operand, key := e.AsCall().Args()[0], e.AsCall().Args()[1]
	switch e.AsCall().FunctionName() {
	case operators.Index:
	case operators.OptIndex, operators.OptSelect:
		want = optional
	case operators.In:
		operand, key, want = key, operand, isThere
	default:
		return nil, "", 0, false
	}
	if key.Kind() == ast.LiteralKind {
		text, ok := key.AsLiteral().(types.String)
		return operand, string(text), want, ok
	}
	return operand, "", want, false
}

// walk visits the expressions from the outermost on, and continues inside one if into returns true.
func walk(e ast.Expr, into func(ast.Expr) bool) {
	if into(e) {
		for _, child := range children(e) {
			walk(child, into)
		}
	}
}

// children returns the expressions directly inside one. Rules make no objects.
func children(e ast.Expr) []ast.Expr {
	switch e.Kind() {
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			return append([]ast.Expr{call.Target()}, call.Args()...)
		}
		return call.Args()
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		return []ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()}
	case ast.ListKind:
		return e.AsList().Elements()
	case ast.MapKind:
		var all []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			all = append(all, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return all
	case ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	}
	return nil
}
