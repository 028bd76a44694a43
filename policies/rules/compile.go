package rules

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/parser"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/library"

	"outboard.dev/outboard/policy/fields"
)

const (
	// costLimit bounds one evaluation, in Kubernetes' units; a million of these take about 0.03 s.
	costLimit = 250_000
	// partSteps bounds the steps of loops in the evaluation of a part.
	partSteps = 5000
	// maxLength bounds an expression, in bytes.
	maxLength = 10_000
	// longestQuantity is longer than any quantity that Kubernetes accepts.
	longestQuantity = 64
)

// part is a subexpression that is computed separately.
type part struct {
	name    string // of the variable that replaces it
	class   class
	index   int // among the values of its class
	text    string
	program cel.Program
	signal  int // index of the signal, for ofSignal
	use     signalUse
}

// expression is the rest of an expression without its parts.
type expression struct {
	whole   *part       // if the expression is one part
	program cel.Program // does not count its cost
	// arithmetic replaces program, if the expression consists of numbers and truth values, and isNumber is what its value is.
	arithmetic arithmetic
	isNumber   bool
	// counting are the programs that count the cost, and end when it exceeds the limit with the same index in limits.
	// They are nil if program cannot exceed any limit for any values of the parts.
	counting [len(limits)]cel.Program
	// usualCost is the maximum cost of program if all parts have usual sizes, and possibleCost for all sizes.
	usualCost, possibleCost uint64
	parts                   []*part // all, in order
	reads                   []read
	lookups                 []lookup
	deps                    deps
}

// compiler compiles the expressions of one policy.
type compiler struct {
	schema    *schema
	env       *cel.Env
	parts     []*part
	counts    [classes]int
	signals   []string // about nodes
	constants []value
}

// template has the schema and the environment of all compilers, which nothing changes once they are made.
var template = sync.OnceValues(func() (*compiler, error) {
	s, err := newSchema()
	if err != nil {
		return nil, err
	}
	env, err := newEnv(s)
	return &compiler{schema: s, env: env}, err
})

func newCompiler() (*compiler, error) {
	t, err := template()
	if err != nil {
		return nil, err
	}
	return &compiler{schema: t.schema, env: t.env}, nil
}

// compile returns the expression, or its errors.
func (c *compiler) compile(path *field.Path, text string, may deps, results ...*types.Type) (*expression, field.ErrorList) {
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
	tree := checked.NativeRep()
	at := func(id int64) common.Location { return tree.SourceInfo().GetStartLocation(id) }
	root := tree.Expr().ID()
	a := analyze(tree)
	var errs field.ErrorList
	walk(tree.Expr(), func(e ast.Expr) bool {
		if message, wrong := mustBeLiteral(e); wrong {
			a.problem(e, message)
		}
		if operand, _, _, _ := access(e); operand != nil && isDynamic(tree.GetType(operand.ID())) {
			a.problem(e, "whether the field exists cannot be checked: write the object without dyn()")
			return false
		}
		return true
	})
	for _, p := range a.problems {
		errs = append(errs, invalid(path, text, at(p.id), p.message))
	}
	if !slices.ContainsFunc(results, checked.OutputType().IsExactType) {
		errs = append(errs, invalid(path, text, common.NewLocation(1, 0), fmt.Sprintf("is a %s: must be a %s", checked.OutputType(), join(results))))
	}
	if a.deps[root]&^may != 0 {
		errs = append(errs, invalid(path, text, common.NewLocation(1, 0), "must read the pod only"))
	}
	if cost, err := c.env.EstimateCost(checked, &estimator{library.CostEstimator{SizeEstimator: computedSizes{usualSizes}}}); err != nil {
		errs = append(errs, field.InternalError(path, err))
	} else if cost.Max > costLimit {
		errs = append(errs, invalid(path, text, common.NewLocation(1, 0), tooCostly(cost.Max)))
	}
	if len(errs) > 0 {
		return nil, errs
	}
	e := &expression{reads: a.reads, lookups: a.lookups, deps: a.deps[root]}
	for i := range e.lookups {
		e.lookups[i].at = at(e.lookups[i].id)
	}
	for _, p := range c.split(checked, a, e) {
		errs = append(errs, invalid(path, text, at(p.id), p.message))
	}
	return e, errs
}

// split splits the expression into parts.
func (c *compiler) split(checked *cel.Ast, a *analysis, e *expression) []problem {
	tree := checked.NativeRep()
	problems := c.checkConstants(checked, a)
	replaced := map[int64]*part{}
	walk(tree.Expr(), func(x ast.Expr) bool {
		kind := a.separable(x)
		if kind == mixed {
			return true
		}
		p, err := c.newPart(checked, a, x, kind)
		if err != nil {
			problems = append(problems, problem{x.ID(), err.Error()})
			return false
		}
		replaced[x.ID()] = p
		e.parts = append(e.parts, p)
		return false
	})
	if len(problems) > 0 {
		return problems
	}
	e.isNumber = checked.OutputType().IsExactType(types.DoubleType)
	compiled := arithmeticCompiler{tree, replaced}.compile(tree.Expr())
	if e.whole = replaced[tree.Expr().ID()]; e.whole != nil {
		if e.whole.class == ofSignal {
			e.arithmetic = compiled
		}
		return nil
	}
	rest, err := c.optimize(replace{replaced}, checked)
	if err != nil {
		return []problem{{tree.Expr().ID(), err.Error()}}
	}
	if err := c.rest(rest, e); err != nil {
		return []problem{{tree.Expr().ID(), err.Error()}}
	}
	if e.counting[0] == nil {
		e.arithmetic = compiled
	}
	return nil
}

// rest compiles the rest of an expression. Counting costs allocates much, so it is only done if
// necessary.
func (c *compiler) rest(checked *cel.Ast, e *expression) (err error) {
	if e.program, err = c.env.Program(checked, cel.EvalOptions(cel.OptOptimize)); err != nil {
		return err
	}
	e.usualCost, e.possibleCost = c.bound(checked, usualSizes), c.bound(checked, possibleSizes)
	if e.possibleCost <= limits[len(limits)-1].cost {
		return nil
	}
	for i, limit := range limits {
		if e.counting[i], err = c.counting(checked, limit); err != nil {
			return err
		}
	}
	return nil
}

// bound returns the highest cost of an evaluation if the contents of objects have at most these sizes.
func (c *compiler) bound(checked *cel.Ast, within sizes) uint64 {
	cost, err := c.env.EstimateCost(checked, &estimator{library.CostEstimator{SizeEstimator: within}})
	if err != nil {
		return math.MaxUint64
	}
	return cost.Max
}

func tooCostly(cost uint64) string {
	if cost > 1e12 {
		return fmt.Sprintf("its cost cannot be estimated: must be at most %d", costLimit)
	}
	return fmt.Sprintf("has an estimated cost of %d: must be at most %d; check for nested loops", cost, costLimit)
}

func (c *compiler) newPart(checked *cel.Ast, a *analysis, x ast.Expr, kind class) (*part, error) {
	text, err := parser.Unparse(x, checked.NativeRep().SourceInfo())
	if err != nil {
		return nil, err
	}
	p := &part{name: "@" + strconv.Itoa(len(c.parts)), class: kind, text: text}
	if kind == ofSignal {
		use := a.signals[x.ID()]
		p.use, p.signal = use, slices.Index(c.signals, use.name)
		if p.signal < 0 {
			p.signal = len(c.signals)
			c.signals = append(c.signals, use.name)
		}
	} else if p.program, err = c.extract(checked, x); err != nil {
		return nil, err
	}
	p.index = c.counts[kind]
	c.counts[kind]++
	c.parts = append(c.parts, p)
	if kind == constant {
		constant, _ := kept(p.program, cel.NoVars())
		c.constants = append(c.constants, constant)
	}
	return p, nil
}

// checkConstants finds errors that do not depend on the pod and the node.
func (c *compiler) checkConstants(checked *cel.Ast, a *analysis) []problem {
	var problems []problem
	walk(checked.NativeRep().Expr(), func(x ast.Expr) bool {
		if a.local[x.ID()] || a.deps[x.ID()] != 0 || x.Kind() != ast.CallKind {
			return true
		}
		program, err := c.extract(checked, x)
		if err == nil {
			_, _, err = program.Eval(cel.NoVars())
		}
		if err != nil {
			problems = append(problems, problem{x.ID(), err.Error()})
		}
		return false
	})
	return problems
}

func (c *compiler) extract(checked *cel.Ast, x ast.Expr) (cel.Program, error) {
	alone, err := c.optimize(extract{x.ID()}, checked)
	if err != nil {
		return nil, err
	}
	return c.counting(alone, limit{costLimit, partSteps})
}

// optimize returns the expression as changed by the optimizer.
func (c *compiler) optimize(by cel.ASTOptimizer, checked *cel.Ast) (*cel.Ast, error) {
	optimizer, err := cel.NewStaticOptimizer(by)
	if err != nil {
		return nil, err
	}
	changed, issues := optimizer.Optimize(c.env, checked)
	return changed, issues.Err()
}

// counting compiles a program for [count].
func (c *compiler) counting(checked *cel.Ast, l limit) (cel.Program, error) {
	return c.env.Program(checked, append(c.bounded(checked, l.cost),
		cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost),
		cel.CostLimit(l.cost),
		cel.InterruptCheckFrequency(l.steps),
		cel.CostTracking(&library.CostEstimator{}),
		cel.CostTrackerOptions(interpreter.PresenceTestHasCost(false)),
	)...)
}

// invalid returns an error at a position in an expression; its value is the text from there on, or the end of the text if the error is there.
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
	return field.Invalid(path, rest, fmt.Sprintf("%d:%d: %s", max(1, at.Line()), at.Column()+1, message))
}

var undeclared = regexp.MustCompile(`^undeclared reference to '([^']*)' \(in container ''\)$`)

// hyphenated matches a name with hyphens after a dot, which CEL reads as a subtraction.
var hyphenated = regexp.MustCompile(`([A-Za-z_][\w.]*)\.(\w+(?:-[A-Za-z_]\w*)+)`)

// hint adds to the message about an unknown name in the text the name that is probably meant, how to write it if it has a hyphen, or that
// Outboard removes the field, and omits the list of all tokens.
func (c *compiler) hint(message, text string) string {
	if m := undeclared.FindStringSubmatch(message); m != nil {
		names := slices.Collect(maps.Keys(c.env.Functions()))
		for _, v := range c.env.Variables() {
			names = append(names, v.Name())
		}
		message = "undeclared reference to '" + m[1] + "'"
		for _, h := range hyphenated.FindAllStringSubmatch(text, -1) {
			if slices.Contains(strings.Split(h[2], "-")[1:], m[1]) {
				return message + fmt.Sprintf(": %s is a subtraction: write %s[%q] for a name with hyphens", h[0], h[1], h[2])
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
