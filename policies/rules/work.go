package rules

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"outboard.dev/outboard/policy/fields"
)

// work says what one call of a function costs at most, in units of cost, before it is called. Kubernetes' counter adds the cost of a call
// after it has ended, so it cannot end a call, and it counts some calls as 1 whatever their arguments are.
type work struct {
	of func(args []ref.Val) uint64
	// usual is the most that arguments of usual size can cost. Up to here, Kubernetes' cost counts, which estimates know.
	usual uint64
}

const (
	usualText = 26            // 256 bytes
	usualList = 64 * (1 + 26) // 64 elements of 256 bytes
	// zoneWork is the work of reading a time zone from a file.
	zoneWork = 2000
	// instructionsPerUnit is how many instructions of a regular expression are tried on ten bytes for a unit of cost. Kubernetes assumes
	// that an instruction has four characters, which `x{1000}` has not.
	instructionsPerUnit = 4
)

// works has the functions whose cost Kubernetes does not count, or only after a call that can take much longer than the limit. The cost of
// all others is constant, or proportional to the length of their arguments and counted.
var works = map[string]work{
	// Kubernetes counts 1.
	"bool": {text, usualText}, "double": {text, usualText}, "int": {text, usualText}, "uint": {text, usualText},
	"duration": {text, usualText}, "timestamp": {text, usualText}, "size": {characters, usualText},
	"charAt": {text, usualText},
	"isURL":  {text, usualText}, "getEscapedPath": {text, usualText}, "getQuery": {query, usualText},
	"compareTo": {text, usualText}, "isGreaterThan": {text, usualText}, "isLessThan": {text, usualText},
	"unwrapOpt": {elements, usualList}, "optional.unwrap": {elements, usualList},
	"getDate": {zone, 0}, "getDayOfMonth": {zone, 0}, "getDayOfWeek": {zone, 0}, "getDayOfYear": {zone, 0}, "getFullYear": {zone, 0},
	"getHours": {zone, 0}, "getMilliseconds": {zone, 0}, "getMinutes": {zone, 0}, "getMonth": {zone, 0}, "getSeconds": {zone, 0},

	// Kubernetes counts a tenth of the length. These allocate much for each byte, also for an error.
	"semver": {address, 3 * usualText}, "isSemver": {address, 3 * usualText}, "isIP": {address, 3 * usualText}, "ip": {address, 3 * usualText},
	"containsIP": {address, 3 * usualText},

	// Kubernetes counts the elements of a list, not what they contain.
	operators.Equals: {smaller, usualList}, operators.NotEquals: {smaller, usualList}, operators.In: {contained, usualList},
	"flatten":     {elements, 0},
	operators.Add: {joined, usualList},

	// Kubernetes counts short texts as 0, and a search as if it looked at each character once.
	"includes": {searched, 0}, "isSorted": {searched, 0}, "min": {searched, 0}, "max": {searched, 0},
	"indexOf": {search, 0}, "lastIndexOf": {search, 0},

	// The work grows with the square of the list.
	"distinct": {square, 0}, "sort": {square, 0},
	"sets.contains": {product(1), 0}, "sets.intersects": {product(1), 0}, "sets.equivalent": {product(2), 0},

	// The result can be much longer than the arguments.
	"replace": {replaced, 0}, "join": {joinedText, 0}, "format": {formatted, usualList},
}

// literals are the functions with an argument that must be a literal, by its index, the target being the first: any text of the argument
// can cost much, because it is compiled, asks for a million digits, or names a file.
var literals = map[string]struct {
	argument int
	what     string
}{
	"matches": {1, "regular expression"}, "find": {1, "regular expression"}, "findAll": {1, "regular expression"}, "format": {0, "format"},
	"getDate": {1, "time zone"}, "getDayOfMonth": {1, "time zone"}, "getDayOfWeek": {1, "time zone"}, "getDayOfYear": {1, "time zone"},
	"getFullYear": {1, "time zone"}, "getHours": {1, "time zone"}, "getMilliseconds": {1, "time zone"}, "getMinutes": {1, "time zone"},
	"getMonth": {1, "time zone"}, "getSeconds": {1, "time zone"},
}

// mustBeLiteral returns what is wrong with a call whose cost depends on the content of an argument.
func mustBeLiteral(e ast.Expr) (message string, wrong bool) {
	if e.Kind() != ast.CallKind {
		return "", false
	}
	l, ok := literals[e.AsCall().FunctionName()]
	args := children(e)
	if !ok || len(args) <= l.argument || args[l.argument].Kind() == ast.LiteralKind {
		return "", false
	}
	return fmt.Sprintf("the %s of %s must be a literal text, because a computed one can exceed any limit", l.what, e.AsCall().FunctionName()), true
}

// isRegexp reports whether a function applies a regular expression, which is its second argument.
func isRegexp(function string) bool { return literals[function].what == "regular expression" }

// text is the length of all arguments.
func text(args []ref.Val) uint64 { return weigh(args...) }

// characters is the work of counting the characters of a text. Lists and maps know their size.
func characters(args []ref.Val) uint64 {
	if _, ok := args[0].(types.String); ok {
		return weigh(args[0])
	}
	return 1
}

// address is the work of reading a version or an address.
func address(args []ref.Val) uint64 { return 3 * weigh(args...) }

// query is the work of splitting a query, whose result has up to a map entry for every two bytes.
func query(args []ref.Val) uint64 { return 5 * weigh(args...) }

func zone(args []ref.Val) uint64 {
	if len(args) > 1 {
		return zoneWork
	}
	return 1
}

// elements is the number of elements and the length of what the arguments contain, at any depth.
func elements(args []ref.Val) uint64 { return weigh(args...) }

// searched is the work of looking at each element of a list.
func searched(args []ref.Val) uint64 { return weigh(args[0]) }

// smaller is the work of comparing two values, which ends where the smaller one ends.
func smaller(args []ref.Val) uint64 { return min(weigh(args[0]), weigh(args[1])) }

// contained is the work of searching a list; a map finds a key by its hash.
func contained(args []ref.Val) uint64 {
	if _, ok := args[1].(traits.Mapper); ok {
		return weigh(args[0])
	}
	return weigh(args[1])
}

// search is the work of searching a list, or a text in another one, character by character.
func search(args []ref.Val) uint64 {
	in, ok := args[0].(types.String)
	if !ok {
		return searched(args)
	}
	what, _ := args[1].(types.String)
	return 1 + times(uint64(len(in)), uint64(len(what)))/10
}

// joined is the work of adding lists, which are read through all their parts later.
func joined(args []ref.Val) uint64 {
	if l, ok := args[0].(traits.Lister); ok {
		return sizeOf(l) + sizeOf(args[1])
	}
	return weigh(args...)
}

// listCost is what Kubernetes counts for a call that makes a list.
const listCost = 11

// square is the work of comparing all elements of a list with each other, as Kubernetes counts it, and of reading long ones.
func square(args []ref.Val) uint64 {
	n := sizeOf(args[0])
	pairs := times(n, n)
	return add(listCost+long(args[0]), add(times(2, pairs), pairs/10))
}

// product is the work of comparing all elements of a list with all of another one.
func product(factor uint64) func([]ref.Val) uint64 {
	return func(args []ref.Val) uint64 {
		return add(1+long(args...), times(factor, times(sizeOf(args[0]), sizeOf(args[1]))))
	}
}

// long is the work of reading values once, if they are of unusual size.
func long(values ...ref.Val) uint64 {
	w := weigh(values...)
	return w - min(w, usualList)
}

func replaced(args []ref.Val) uint64 {
	in, _ := args[0].(types.String)
	from, _ := args[1].(types.String)
	to, _ := args[2].(types.String)
	return 1 + (2*uint64(len(in))+times(uint64(strings.Count(string(in), string(from))), uint64(len(to))))/10
}

func joinedText(args []ref.Val) uint64 {
	separators := uint64(0)
	if len(args) > 1 {
		separators = times(sizeOf(args[0]), weigh(args[1])+1)
	}
	return add(weigh(args[0]), separators)
}

// formatted counts the digits that the format asks for, too.
func formatted(args []ref.Val) uint64 {
	in, _ := args[0].(types.String)
	digits, number := uint64(0), uint64(0)
	for i := range len(in) {
		if c := in[i]; '0' <= c && c <= '9' {
			number = add(times(number, 10), uint64(c-'0'))
			continue
		}
		digits, number = add(digits, number), 0
	}
	return add(times(2, weigh(args...)), digits/10)
}

// instructions returns how many instructions a regular expression has, or 1 if it has an error, which its compilation reports.
func instructions(pattern string) uint64 {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 1
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 1
	}
	return uint64(len(program.Inst))
}

// matching is the work of applying a regular expression to a text of this length, each of whose characters may be a result.
func matching(length, instructions uint64) uint64 {
	return add(length, times(1+length/10, 1+instructions/instructionsPerUnit))
}

func add(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

func times(a, b uint64) uint64 {
	if a > 0 && b > math.MaxUint64/a {
		return math.MaxUint64
	}
	return a * b
}

func sizeOf(v ref.Val) uint64 {
	if s, ok := v.(traits.Sizer); ok {
		n, _ := s.Size().(types.Int)
		return uint64(n)
	}
	return 1
}

// weigh returns the number of elements, plus a tenth of the length of all texts in bytes, of what the values contain at any depth. It
// counts no further than the limit of an evaluation: a list can contain another one thousands of times.
func weigh(values ...ref.Val) uint64 {
	w := weight{left: 10 * (costLimit + 1)}
	for _, v := range values {
		w.add(v)
	}
	return 10*(costLimit+1)/10 - uint64(max(0, w.left))/10
}

// weight counts in tenths.
type weight struct{ left int64 }

func (w *weight) take(elements, bytes int) { w.left -= 10*int64(elements) + int64(bytes) }

func (w *weight) add(v ref.Val) {
	if w.left <= 0 {
		return
	}
	switch v := v.(type) {
	case types.String:
		w.take(0, len(v))
	case types.Bytes:
		w.take(0, len(v))
	case *object:
		w.addNative(v.value)
	case *orderedMap:
		w.addNative(v.native)
	case keyedSignal:
		w.take(v.Len(), 0)
	case *types.Optional:
		if v.HasValue() {
			w.add(v.GetValue())
		}
	case apiservercel.URL:
		w.take(1, 0)
		w.addNative(reflect.ValueOf(v.URL))
	case apiservercel.Semver:
		w.take(1+len(v.Pre)+len(v.Build), 0)
	case traits.Mapper:
		for it := v.Iterator(); w.left > 0 && it.HasNext() == types.True; {
			key := it.Next()
			w.take(1, 0)
			w.add(key)
			w.add(v.Get(key))
		}
	case traits.Lister:
		for it := v.Iterator(); w.left > 0 && it.HasNext() == types.True; {
			w.take(1, 0)
			w.add(it.Next())
		}
	}
}

// addNative is add for the Go values of objects.
func (w *weight) addNative(v reflect.Value) {
	if w.left <= 0 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		w.take(0, v.Len())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			w.addNative(v.Elem())
		}
	case reflect.Slice:
		w.take(v.Len(), 0)
		for i := 0; w.left > 0 && i < v.Len(); i++ {
			w.addNative(v.Index(i))
		}
	case reflect.Map:
		w.take(v.Len(), 0)
		for it := v.MapRange(); w.left > 0 && it.Next(); {
			w.addNative(it.Key())
			w.addNative(it.Value())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			w.addNative(v.Field(i))
		}
	}
}

// bounded returns the options for a program that refuses a call whose work alone exceeds the limit, before the call, and counts the work of
// each call.
func (c *compiler) bounded(checked *cel.Ast, limit uint64) []cel.ProgramOption {
	patterns := map[string]uint64{}
	walk(checked.NativeRep().Expr(), func(e ast.Expr) bool {
		if e.Kind() == ast.CallKind && isRegexp(e.AsCall().FunctionName()) {
			if text, ok := children(e)[1].AsLiteral().(types.String); ok {
				patterns[string(text)] = instructions(string(text))
			}
		}
		return true
	})
	matched := func(args []ref.Val) uint64 {
		in, _ := args[0].(types.String)
		pattern, _ := args[1].(types.String)
		return matching(uint64(len(in)), patterns[string(pattern)])
	}
	var trackers []interpreter.CostTrackerOption
	track := func(overload string, of func([]ref.Val) uint64, usual uint64) {
		trackers = append(trackers, interpreter.OverloadCostTracker(overload, func(args []ref.Val, _ ref.Val) *uint64 {
			if cost := of(args); cost > usual {
				return &cost
			}
			return nil // Kubernetes' cost counts
		}))
	}
	for name, f := range c.env.Functions() {
		of, ok := works[name]
		for _, o := range f.OverloadDecls() {
			switch {
			case isRegexp(name):
				track(o.ID(), matched, 0)
			case ok:
				track(o.ID(), of.of, of.usual)
			}
		}
	}
	return []cel.ProgramOption{
		cel.CostTrackerOptions(trackers...),
		cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
			call, ok := i.(interpreter.InterpretableCall)
			if !ok {
				return i, nil
			}
			if isRegexp(call.Function()) {
				return c.checkedMatch(call, limit)
			}
			if of, ok := works[call.Function()]; ok {
				return c.checkedCall(call, of.of, limit)
			}
			return i, nil
		}),
	}
}

// checkedCall is the call, which ends the evaluation if its work exceeds the limit.
func (c *compiler) checkedCall(call interpreter.InterpretableCall, of func([]ref.Val) uint64, limit uint64) (interpreter.InterpretableCall, error) {
	run, err := c.binding(call)
	if err != nil {
		return nil, err
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
		if of(args) > limit {
			panic(errCostExceeded)
		}
		return run(args...)
	}), nil
}

// binding returns the implementation of a call.
func (c *compiler) binding(call interpreter.InterpretableCall) (functions.FunctionOp, error) {
	switch call.Function() {
	case operators.Equals:
		return func(args ...ref.Val) ref.Val { return types.Equal(args[0], args[1]) }, nil
	case operators.NotEquals:
		return func(args ...ref.Val) ref.Val { return types.Bool(types.Equal(args[0], args[1]) != types.True) }, nil
	}
	bindings, err := c.env.Functions()[call.Function()].Bindings()
	if err != nil {
		return nil, err
	}
	// The binding of the function itself calls that of the overload.
	i := slices.IndexFunc(bindings, func(b *functions.Overload) bool { return b.Operator == call.Function() })
	if i < 0 {
		return nil, errors.New("there is no function " + call.Function())
	}
	found := bindings[i]
	return func(args ...ref.Val) ref.Val {
		switch {
		case found.OperandTrait != 0 && !args[0].Type().HasTrait(found.OperandTrait):
		case len(args) == 1 && found.Unary != nil:
			return found.Unary(args[0])
		case len(args) == 2 && found.Binary != nil:
			return found.Binary(args[0], args[1])
		case found.Function != nil:
			return found.Function(args...)
		}
		return types.NewErr("no such overload: %s", call.Function())
	}, nil
}

// checkedMatch is the call of a regular expression, which the library compiles once. Its text is checked when it is evaluated.
func (c *compiler) checkedMatch(call interpreter.InterpretableCall, limit uint64) (interpreter.InterpretableCall, error) {
	args := call.Args()
	pattern, ok := args[1].(interpreter.InterpretableConst)
	if !ok {
		return nil, fmt.Errorf("the regular expression of %s is not a literal text", call.Function())
	}
	literal, _ := pattern.Value().(types.String)
	run, err := c.binding(call)
	if err != nil {
		return nil, err
	}
	checked := append([]interpreter.InterpretableV2{matchedText{args[0], instructions(string(literal)), limit}}, args[1:]...)
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), checked, run), nil
}

// matchedText is a text to which a regular expression of so many instructions is applied.
type matchedText struct {
	interpreter.InterpretableV2
	instructions, limit uint64
}

// Exec implements interpreter.InterpretableV2.
func (m matchedText) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := m.InterpretableV2.Exec(frame)
	if text, ok := v.(types.String); ok && matching(uint64(len(text)), m.instructions) > m.limit {
		panic(errCostExceeded)
	}
	return v
}

// Eval implements interpreter.Interpretable.
func (m matchedText) Eval(vars interpreter.Activation) ref.Val {
	return m.Exec(interpreter.AsFrame(vars))
}

// isQuantity and quantity are Kubernetes' functions for texts that the Kubernetes libraries read in a short time.
var (
	isQuantity = cel.Overload("is_quantity_string", []*cel.Type{cel.StringType}, cel.BoolType, cel.UnaryBinding(func(v ref.Val) ref.Val {
		_, err := fields.ParseQuantity(string(v.(types.String)))
		return types.Bool(err == nil)
	}))
	stringToQuantity = cel.Overload("string_to_quantity", []*cel.Type{cel.StringType}, apiservercel.QuantityType, cel.UnaryBinding(func(v ref.Val) ref.Val {
		q, err := fields.ParseQuantity(string(v.(types.String)))
		if err != nil {
			return types.WrapErr(err)
		}
		return apiservercel.Quantity{Quantity: &q}
	}))
)
