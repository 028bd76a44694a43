package firstfit

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	resourcev1 "k8s.io/api/resource/v1"
)

// The fields of the variable in a selector.
const (
	deviceVar     = "device"
	attributesVar = "attributes"
)

// reads are the attributes of devices that a selector reads.
type reads struct {
	names []string // without domains
	all   bool     // it may read any: names are not known
}

// Reads returns the names, without domains, of the attributes of devices that the selectors of the request read, in order. ok is false if
// the selectors may read any attribute.
func (r *Request) Reads() (names []string, ok bool) {
	ok = true
	add := func(all []resourcev1.DeviceSelector) {
		for _, s := range all {
			if s.CEL != nil {
				of := r.selectors.readsOf(s.CEL.Expression)
				names, ok = append(names, of.names...), ok && !of.all
			}
		}
	}
	for _, class := range r.classes {
		add(class.Spec.Selectors)
	}
	for _, claim := range r.claims {
		for i := range claim.Spec.Devices.Requests {
			for _, exact := range alternatives(&claim.Spec.Devices.Requests[i]) {
				add(exact.Selectors)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), ok
}

// readsOf returns what the selector reads.
func (s *selectors) readsOf(expression string) *reads {
	if known, ok := s.reads.Get(expression); ok {
		return known.(*reads)
	}
	found := &reads{all: true}
	if compiled := s.compiled.GetOrCompile(expression); compiled.Error == nil {
		if parsed, issues := compiled.Environment.Parse(expression); issues.Err() == nil {
			found.all = false
			found.visit(parsed.NativeRep().Expr())
		}
	}
	s.reads.Add(expression, found)
	return found
}

// visit adds what the expression reads. The usual form names an attribute: device.attributes["gpu.example.com"].model, or the same with
// brackets. In all others, attributes may be computed or enumerated.
func (r *reads) visit(e ast.Expr) {
	switch e.Kind() {
	case ast.IdentKind:
		r.all = r.all || strings.Contains(e.AsIdent(), deviceVar)
	case ast.SelectKind:
		s := e.AsSelect()
		switch {
		case isDomain(s.Operand()):
			r.names = append(r.names, s.FieldName())
		case !isDevice(s.Operand()):
			r.visit(s.Operand())
		case s.FieldName() == attributesVar:
			r.all = true
		}
	case ast.CallKind:
		call := e.AsCall()
		if name, ok := indexOf(e, isDomain); ok {
			r.names = append(r.names, name)
			return
		}
		if call.IsMemberFunction() {
			r.visit(call.Target())
		}
		r.visitAll(call.Args())
	case ast.ListKind:
		r.visitAll(e.AsList().Elements())
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		r.visitAll([]ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()})
	case ast.LiteralKind:
	default: // maps and messages, which selectors hardly have
		r.all = true
	}
}

func (r *reads) visitAll(all []ast.Expr) {
	for _, e := range all {
		r.visit(e)
	}
}

func isDevice(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == deviceVar }

// isDomain reports whether the expression is the attributes of one domain: device.attributes["gpu.example.com"].
func isDomain(e ast.Expr) bool {
	_, ok := indexOf(e, func(e ast.Expr) bool {
		return e.Kind() == ast.SelectKind && isDevice(e.AsSelect().Operand()) && e.AsSelect().FieldName() == attributesVar
	})
	return ok
}

// indexOf returns the constant with which the expression reads an element of what is accepted.
func indexOf(e ast.Expr, accepted func(ast.Expr) bool) (index string, ok bool) {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Index {
		return "", false
	}
	args := e.AsCall().Args()
	if len(args) != 2 || args[1].Kind() != ast.LiteralKind || !accepted(args[0]) {
		return "", false
	}
	index, ok = args[1].AsLiteral().Value().(string)
	return index, ok
}
