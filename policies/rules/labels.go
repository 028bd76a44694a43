package rules

import (
	"fmt"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
)

// label is a label or an annotation whose key is in the text of an expression.
type label struct {
	object string // pod or node
	field  string // labels or annotations
	key    string
}

// lookup is a use of a label.
type lookup struct {
	label
	want presence // with number, it is an error if there is no such label
	id   int64
	at   common.Location
}

// labelUse notes the expression if it uses a label.
func (a *analysis) labelUse(e ast.Expr) {
	operand, key, want, ok := access(e)
	if ok && a.isOptional(operand) {
		want = optional
	}
	for _, object := range []string{podVar, nodeVar} {
		for _, name := range []string{"labels", "annotations"} {
			if ok && !a.isLocal(object) && isField(operand, name, "metadata", object) {
				a.lookups = append(a.lookups, lookup{label: label{object, name, key}, want: want, id: e.ID()})
			}
		}
	}
}

// isField reports whether the expression is a field, whose names are from the innermost one to the variable. The field may be optional, and have
// a default.
func isField(e ast.Expr, names ...string) bool {
	if len(names) == 1 {
		return e.Kind() == ast.IdentKind && e.AsIdent() == names[0]
	}
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == "orValue" && e.AsCall().IsMemberFunction() {
		e = e.AsCall().Target()
	}
	operand, name, _, ok := access(e)
	return ok && name == names[0] && isField(operand, names[1:]...)
}

// isOptional reports whether the expression is an optional value, in which a key need not exist.
func (a *analysis) isOptional(e ast.Expr) bool {
	return a.tree.GetType(e.ID()).TypeName() == types.OptionalType.TypeName()
}

// warnLookups returns a warning for each label without which an expression of the rule is an error. It returns none about a label for which the
// rule tests, or of which failurePolicy says what happens.
func (r *rule) warnLookups(path *field.Path, matchConditions []MatchCondition, expression string) field.ErrorList {
	tested := map[label]bool{}
	for _, e := range append(r.conditions, condition{expression: r.expression}) {
		for _, l := range e.expression.lookups {
			tested[l.label] = tested[l.label] || l.want != number
		}
	}
	warned := map[label]bool{}
	var warnings field.ErrorList
	warn := func(l lookup, at *field.Path, text, result string) {
		if r.failurePolicy != policy.Ignore && !tested[l.label] && !warned[l.label] {
			warned[l.label] = true
			warnings = append(warnings, invalid(at, text, l.at,
				fmt.Sprintf("a %s without %q in %s is an error, and %s: write %s.metadata.?%s[?%q].orValue(\"\")", l.object, l.key, l.field, result, l.object, l.field, l.key)))
		}
	}
	for i, m := range r.conditions {
		for _, l := range m.expression.lookups {
			warn(l, path.Child("matchConditions").Index(i).Child("expression"), matchConditions[i].Expression, "the request fails")
		}
	}
	at := path.Child("expression")
	for _, l := range r.expression.lookups {
		switch {
		case r.reason == nil: // a score, for which an error is no failure
		case l.object == podVar:
			warn(l, at, expression, "the rule rejects every node")
		default:
			warn(l, at, expression, "the rule rejects the node")
		}
	}
	return warnings
}
