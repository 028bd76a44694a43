package rules

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/parser"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"outboard.dev/outboard/policy/fields"
)

// maxLength bounds an expression, in bytes.
const maxLength = 10_000

// compiler compiles the expressions of one policy.
type compiler struct {
	schema    *schema
	env       *cel.Env
	parts     []*part
	counts    [classes]int // of parts
	signals   []string     // about nodes
	constants []ref.Val
}

// expression is a compiled expression. Its value is that of whole, or of program, whose variables
// are parts.
type expression struct {
	name    string // of a match condition
	path    *field.Path
	text    string
	whole   *part // nil if the expression is more than one part
	program cel.Program
	parts   []*part // all, in order
	reads   []read
	lookups []lookup
	deps    deps
}

// part is a subexpression that is computed separately.
type part struct {
	name    string // of the variable that replaces it
	text    string
	deps    deps
	class   class
	index   int         // among the values of its class
	program cel.Program // nil for ofSignal
	want    presence    // of the signal, for ofSignal
}

func newCompiler() (*compiler, error) {
	s, err := newSchema()
	if err != nil {
		return nil, err
	}
	env, err := newEnv(s)
	return &compiler{schema: s, env: env}, err
}

// compile returns the expression, or its errors.
func (c *compiler) compile(
	path *field.Path, text string, may deps, results ...*types.Type,
) (*expression, field.ErrorList) {
	switch {
	case strings.TrimSpace(text) == "":
		return nil, field.ErrorList{field.Required(path, "must be an expression in CEL")}
	case len(text) > maxLength:
		return nil, field.ErrorList{field.TooLong(path, "", maxLength)}
	}
	checked, issues := c.env.Compile(text)
	if issues.Err() != nil {
		var errs field.ErrorList
		for _, e := range issues.Errors() {
			errs = append(errs, invalid(path, text, e.Location, c.hint(e.Message, text)))
		}
		return nil, errs
	}
	a := analyze(checked.NativeRep())
	a.check(checked.NativeRep().Expr())
	e := &expression{
		path: path, text: text,
		reads: a.reads, lookups: a.lookups, deps: a.deps[checked.NativeRep().Expr().ID()],
	}
	start := common.NewLocation(1, 0)
	if !slices.ContainsFunc(results, checked.OutputType().IsExactType) {
		a.problem(start, "is a %s: must be a %s", checked.OutputType(), join(results))
	}
	if e.deps&^may != 0 {
		a.problem(start, "must read the pod only")
	}
	if message := c.checkCost(checked); message != "" {
		a.problem(start, "%s", message)
	}
	if len(a.problems) == 0 {
		c.split(checked, a, e)
	}
	var errs field.ErrorList
	for _, p := range a.problems {
		errs = append(errs, invalid(path, text, p.Location, p.Message))
	}
	return e, errs
}

// check finds the problems of the expressions in a tree that their types do not show.
func (a *analysis) check(tree ast.Expr) {
	walk(tree, func(e ast.Expr) bool {
		if message := checkPattern(e); message != "" {
			a.problem(a.at(e), "%s", message)
		}
		operand, _, _, _ := access(e)
		if operand != nil && isDynamic(a.tree.GetType(operand.ID())) {
			a.problem(a.at(e),
				"whether the field exists cannot be checked: write the object without dyn()")
			return false
		}
		return true
	})
}

// split splits the expression into parts.
func (c *compiler) split(checked *cel.Ast, a *analysis, e *expression) {
	c.checkConstants(checked, a)
	replaced := map[int64]*part{}
	root := checked.NativeRep().Expr()
	walk(root, func(x ast.Expr) bool {
		class := a.separable(x)
		if class == mixed {
			return true
		}
		p, err := c.newPart(checked, a, x, class)
		if err != nil {
			a.problem(a.at(x), "%v", err)
			return false
		}
		replaced[x.ID()] = p
		e.parts = append(e.parts, p)
		return false
	})
	if e.whole = replaced[root.ID()]; e.whole != nil || len(a.problems) > 0 {
		return
	}
	rest, err := c.optimize(replace(replaced), checked)
	if err == nil {
		e.program, err = c.program(rest, nodeCostLimit)
	}
	if err != nil {
		a.problem(a.at(root), "%v", err)
	}
}

// checkConstants finds errors that do not depend on the pod and the node.
func (c *compiler) checkConstants(checked *cel.Ast, a *analysis) {
	walk(checked.NativeRep().Expr(), func(x ast.Expr) bool {
		if a.local[x.ID()] || a.deps[x.ID()] != 0 || x.Kind() != ast.CallKind {
			return true
		}
		program, err := c.extract(checked, x)
		if err == nil {
			_, _, err = program.Eval(cel.NoVars())
		}
		if err != nil {
			a.problem(a.at(x), "%v", err)
		}
		return false
	})
}

func (c *compiler) newPart(checked *cel.Ast, a *analysis, x ast.Expr, class class) (*part, error) {
	text, err := parser.Unparse(x, checked.NativeRep().SourceInfo())
	if err != nil {
		return nil, err
	}
	p := &part{name: fmt.Sprint("@", len(c.parts)), text: text, deps: a.deps[x.ID()], class: class}
	if class == ofSignal {
		use := a.signals[x.ID()]
		p.want, p.index = use.want, slices.Index(c.signals, use.signal)
		if p.index < 0 {
			p.index = len(c.signals)
			c.signals = append(c.signals, use.signal)
		}
	} else {
		if p.program, err = c.extract(checked, x); err != nil {
			return nil, err
		}
		p.index = c.counts[class]
		c.counts[class]++
	}
	c.parts = append(c.parts, p)
	if class == constant {
		c.constants = append(c.constants, p.evaluate(context.Background(), cel.NoVars()))
	}
	return p, nil
}

// evaluate returns the value of the part, which may be an error. It is shared, so a quantity is a
// copy.
func (p *part) evaluate(ctx context.Context, vars any) ref.Val {
	v, _, err := p.program.ContextEval(ctx, vars)
	if err != nil {
		return types.WrapErr(err)
	}
	switch q := v.(type) {
	case apiservercel.Quantity:
		return copied(q.Quantity)
	case *apiservercel.Quantity: // the result of the policy's own functions
		return copied(q.Quantity)
	}
	return v
}

// extract compiles one expression of the tree.
func (c *compiler) extract(checked *cel.Ast, x ast.Expr) (cel.Program, error) {
	alone, err := c.optimize(func(ctx *cel.OptimizerContext, tree *ast.AST) *ast.AST {
		walk(tree.Expr(), func(e ast.Expr) bool {
			if e.ID() == x.ID() {
				tree = ctx.NewAST(e)
			}
			return true
		})
		return tree
	}, checked)
	if err != nil {
		return nil, err
	}
	return c.program(alone, costLimit)
}

// optimize returns the expression as changed by the optimizer.
func (c *compiler) optimize(by optimizer, checked *cel.Ast) (*cel.Ast, error) {
	static, err := cel.NewStaticOptimizer(by)
	if err != nil {
		return nil, err
	}
	changed, issues := static.Optimize(c.env, checked)
	return changed, issues.Err()
}

type optimizer func(ctx *cel.OptimizerContext, tree *ast.AST) *ast.AST

func (o optimizer) Optimize(ctx *cel.OptimizerContext, tree *ast.AST) *ast.AST {
	return o(ctx, tree)
}

// replace returns an optimizer that replaces expressions with the variables of parts, by the id of
// the expression.
func replace(parts map[int64]*part) optimizer {
	return func(ctx *cel.OptimizerContext, tree *ast.AST) *ast.AST {
		var vars []cel.EnvOption
		walk(tree.Expr(), func(e ast.Expr) bool {
			p, ok := parts[e.ID()]
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
}

// invalid returns an error at a position in an expression; its value is the text from there on, or
// the end of the text if the error is there.
func invalid(path *field.Path, text string, at common.Location, message string) *field.Error {
	const shown = 40
	lines := strings.Split(text, "\n")
	rest := ""
	if line := at.Line() - 1; line >= 0 && line < len(lines) {
		characters := []rune(lines[line])
		rest = string(characters[max(0, min(at.Column(), len(characters))):])
	}
	if characters := []rune(rest); len(characters) > shown {
		rest = string(characters[:shown]) + "…"
	}
	if strings.TrimSpace(rest) == "" {
		rest = strings.TrimSpace(text)
		if characters := []rune(rest); len(characters) > shown {
			rest = "…" + string(characters[len(characters)-shown:])
		}
	}
	message = strings.Join(strings.Fields(message), " ")
	return field.Invalid(path, rest,
		fmt.Sprintf("%d:%d: %s", max(1, at.Line()), at.Column()+1, message))
}

var undeclared = regexp.MustCompile(`^undeclared reference to '([^']*)'`)

// hyphenated matches a name with hyphens after a dot, which CEL reads as a subtraction.
var hyphenated = regexp.MustCompile(`([A-Za-z_][\w.]*)\.(\w+(?:-[A-Za-z_]\w*)+)`)

// hint adds to the message about an unknown name in the text the name that is probably meant, how
// to write it if it has a hyphen, or that Outboard removes the field, and omits the list of all
// tokens.
func (c *compiler) hint(message, text string) string {
	if m := undeclared.FindStringSubmatch(message); m != nil {
		names := slices.Collect(maps.Keys(c.env.Functions()))
		for _, v := range c.env.Variables() {
			names = append(names, v.Name())
		}
		message = "undeclared reference to '" + m[1] + "'"
		for _, h := range hyphenated.FindAllStringSubmatch(text, -1) {
			if slices.Contains(strings.Split(h[2], "-")[1:], m[1]) {
				return message + fmt.Sprintf(
					": %s is a subtraction: write %s[%q] for a name with hyphens", h[0], h[1], h[2])
			}
		}
		return message + meant(m[1], names)
	}
	if strings.Contains(message, "mismatched input '<EOF>'") {
		return "Syntax error: the expression ends too early"
	}
	name, ok := strings.CutPrefix(message, "undefined field '")
	if !ok {
		return message
	}
	name, _, _ = strings.Cut(name, "'")
	if _, ok := c.schema.byGo[reflect.TypeFor[metav1.ObjectMeta]()].fields[name]; ok {
		return message + fmt.Sprintf(": did you mean %q?", "metadata."+name)
	}
	var known, removed []string
	for _, t := range c.schema.structs {
		if slices.Contains(t.removed, name) {
			left := strings.Join(slices.Sorted(maps.Keys(t.fields)), ", ")
			removed = append(removed, t.name+" has "+cmp.Or(left, "no fields"))
		}
		known = slices.AppendSeq(known, maps.Keys(t.fields))
	}
	if len(removed) > 0 {
		slices.Sort(removed)
		return message + ": Outboard removes it: " + strings.Join(removed, "; ")
	}
	return message + meant(name, known)
}

// meant asks whether the most similar of the known names is meant; "" if none is similar.
func meant(name string, known []string) string {
	slices.Sort(known)
	if near := fields.Nearest(name, known); near != "" && near != name {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return ""
}

func join(all []*types.Type) string {
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = t.String()
	}
	return strings.Join(names, " or ")
}
