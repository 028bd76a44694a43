package rules

import (
	goflag "flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

const (
	// bytesPerUnit and bytesPerCall bound what one call allocates. Package regexp keeps buffers of up to 32 KiB in pools, which a garbage
	// collection empties: any call may be the one that allocates a buffer.
	bytesPerUnit = 512
	bytesPerCall = 48 << 10
	// leastPerByte is the least cost of a byte of text, in thousandths. Kubernetes counts 100.
	leastPerByte = 50
)

var longest = goflag.Int("longest", 60<<10, "how many bytes the long texts of TestEveryFunctionIsBounded have")

// arguments are expressions of each type from annotations of the pod: x is text, y and z are other texts.
var arguments = map[string][]string{
	"string":       {`pod.metadata.annotations["x"]`, `pod.metadata.annotations["y"]`, `pod.metadata.annotations["z"]`},
	"bytes":        {`bytes(pod.metadata.annotations["x"])`},
	"list(string)": {`pod.metadata.annotations["x"].split(",")`},
	"list(list)":   {`[pod.metadata.annotations["x"].split(","), pod.metadata.annotations["x"].split(",")]`},
	"list(dyn)":    {`[dyn(pod.metadata.annotations["x"]), dyn(pod.metadata.annotations["x"].split(","))]`},
	"list(int)":    {`[3, 1, 2]`}, "list(uint)": {`[3u, 1u, 2u]`}, "list(double)": {`[3.0, 1.0, 2.0]`}, "list(bool)": {`[true, false]`},
	"list(bytes)":    {`[bytes(pod.metadata.annotations["x"]), bytes(pod.metadata.annotations["x"])]`},
	"list(duration)": {`[duration("2s"), duration("1s")]`}, "list(timestamp)": {`[timestamp("2026-01-02T03:04:05Z"), timestamp("2025-01-02T03:04:05Z")]`},
	"list(optional)": {`[optional.of(pod.metadata.annotations["x"])]`},
	"map":            {`pod.metadata.annotations`},
	"optional":       {`optional.of(pod.metadata.annotations["x"])`}, "optional(list)": {`optional.of(pod.metadata.annotations["x"].split(","))`}, "optional(map)": {`optional.of(pod.metadata.annotations)`},

	"dyn": {`dyn(pod.metadata.annotations["x"])`}, "bool": {`true`}, "int": {`3`, `100`}, "uint": {`3u`}, "double": {`1.5`},
	"duration": {`duration("1s")`}, "timestamp": {`timestamp("2026-01-02T03:04:05Z")`},
	"kubernetes.Quantity": {`quantity(pod.metadata.annotations["y"])`}, "net.IP": {`ip("2001:db8::1")`}, "net.CIDR": {`cidr("2001:db8::/32")`},
	"kubernetes.Semver": {`semver(pod.metadata.annotations["x"])`}, "kubernetes.URL": {`url(pod.metadata.annotations["x"])`},
	"kubernetes.NamedFormat": {`format.named("dns1123Label").value()`},
}

// written are the expressions with functions, by the name of the function or the overload, that cannot be called with any arguments, or only
// by a macro.
var written = map[string]string{
	"!_": "!%s", "-_": "-%s", "_?_:_": "(%s ? %s : %s)", "_[_]": `(%s[%s] == pod.metadata.name || true)`, "_[?_]": "%s[?%s]",
	"_?._":                       `pod.metadata.annotations.?x`,
	"@sortByAssociatedKeys":      `pod.metadata.annotations["x"].split(",").sortBy(k, k)`,
	"@mapInsert_map_key_value":   `pod.metadata.annotations["x"].split(",").transformMap(i, v, v)`,
	"@mapInsert_map_map":         `pod.metadata.annotations["x"].split(",").transformMapEntry(i, v, {i: v})`,
	operators.NotStrictlyFalse:   `pod.metadata.annotations["x"].split(",").all(k, k != "no")`,
	"lists.range":                `lists.range(30000000)`,
	"matches":                    `pod.metadata.annotations["x"].matches("^([a-z0-9]{1,60},?)+!$")`,
	"find":                       `pod.metadata.annotations["x"].find("[a-z0-9]{1,60}!")`,
	"findAll":                    `pod.metadata.annotations["x"].findAll("[^,]")`,
	"find_all_string_string_int": `pod.metadata.annotations["x"].findAll("[^,]", 1000000)`,
	"optional_list_index_int":    `%s[%s]`, "optional_map_index_value": `%s[%s]`,
	"negate_double": `-double("1.5")`, "negate_int64": `-int("1")`,
	"format.named":                     `format.named(pod.metadata.annotations["x"])`,
	"string_format":                    `"%s %.999999f".format([dyn(pod.metadata.annotations["x"].split(",")), dyn(1.5)])`,
	"list_string_sortByAssociatedKeys": `pod.metadata.annotations["x"].split(",").sortBy(k, k)`,
}

// zoned are the functions with a time zone.
var zoned = []string{
	"getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds",
}

// unwritten are functions that no expression can call.
var unwritten = []string{"__not_strictly_false__", "@in", "in"}

// otherKeys are the overloads of sortBy for keys that are not text, whose implementation is the same.
func isVariant(overload string) bool {
	return strings.HasSuffix(overload, "_sortByAssociatedKeys") && overload != "list_string_sortByAssociatedKeys"
}

// short are the functions that do not read all of a text or a list, with the reason.
var short = map[string]string{
	"size_list": "a number", "list_size": "a number", "size_map": "a number", "map_size": "a number", "size_bytes": "a number", "bytes_size": "a number",
	"bytes_to_bytes": "the same value",
	"dyn":            "the same value", "type": "the type of the value", "string": "the same text, or a text without parts",
	"optional.of": "holds the value", "optional.none": "nothing", "optional.ofNonZeroValue": "knows its size", "hasValue": "a flag", "value": "the value that it holds", "or": "one of the two", "orValue": "one of the two",
	operators.Conditional: "one of the two", "_[_]": "one element", "_[?_]": "one element", "_?._": "one element", "first": "one element", "last": "one element", "slice": "the elements of the result",
	"format.named": "the length of a text decides whether it is a name",
	"quantity":     "at most 64 characters", "isQuantity": "at most 64 characters",
	"isInteger": "a quantity of 64 characters", "asInteger": "a quantity of 64 characters", "asApproximateFloat": "a quantity of 64 characters", "sign": "a quantity of 64 characters", "add": "a quantity of 64 characters", "sub": "a quantity of 64 characters",
	"major": "a number", "minor": "a number", "patch": "a number",
	operators.Greater: "as far as the texts are equal", operators.Less: "as far as the texts are equal", operators.GreaterEquals: "as far as the texts are equal", operators.LessEquals: "as far as the texts are equal",
	"getHost": "a part of the URL", "getHostname": "a part of the URL", "getPort": "a part of the URL", "getScheme": "a part of the URL",
	"reverse": "the elements of the list",
}

// texts are the hostile texts of a length.
var texts = map[string]func(n int) string{
	"letters":     func(n int) string { return strings.Repeat("a", n) },
	"commas":      func(n int) string { return strings.Repeat(",", n) },
	"short items": func(n int) string { return strings.Repeat("ab,", n/3) },
	"distinct": func(n int) string {
		var b strings.Builder
		for i := 0; b.Len() < n-8; i++ {
			fmt.Fprintf(&b, "%x,", i*7919%1000003)
		}
		return b.String()
	},
	"digits":      func(n int) string { return strings.Repeat("9", n) },
	"fraction":    func(n int) string { return "0." + strings.Repeat("3", n) },
	"exponent":    func(n int) string { return "1e-99999999" },
	"exponents":   func(n int) string { return strings.Repeat("1e-99999999,", n/12) },
	"durations":   func(n int) string { return strings.Repeat("1h", n/2) },
	"time":        func(n int) string { return "2026-01-02T03:04:05." + strings.Repeat("1", n) + "Z" },
	"version":     func(n int) string { return "1.2.3-" + strings.Repeat("a.", n/2) + "b" },
	"URL":         func(n int) string { return "https://host/?" + strings.Repeat("a&", n/2) },
	"addresses":   func(n int) string { return "::" + strings.Repeat("f:", n/2) + "/64" },
	"unicode":     func(n int) string { return strings.Repeat("\u0130\U0001F600", n/6) },
	"invalid":     func(n int) string { return strings.Repeat("\xff\xc0", n/2) },
	"percents":    func(n int) string { return strings.Repeat("%.999999f", n/9) },
	"nested":      func(n int) string { return strings.Repeat("((((", n/4) },
	"white space": func(n int) string { return strings.Repeat(" \t", n/2) },
}

// nearly is a text that is almost found in another one.
func nearly(text string) string { return text[:len(text)/2] + "!" }

// The work of one call is counted, and bounded before it starts: this test runs each function of the environment with hostile texts.
func TestEveryFunctionIsBounded(t *testing.T) {
	c := newShared(t)
	var kinds []string
	for kind := range texts {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	tried := 0
	for name, f := range c.env.Functions() {
		if slices.Contains(unwritten, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for _, o := range f.OverloadDecls() {
				if isVariant(o.ID()) {
					continue
				}
				call, args, ok := expressionOf(name, o)
				if !ok {
					t.Errorf("%s: add an argument of each of its types to arguments, or an expression to written", o.ID())
					continue
				}
				checked, issues := c.env.Compile(call)
				if issues.Err() != nil {
					t.Errorf("%s: add an expression to written: %v", o.ID(), issues.Err())
					continue
				}
				called := strings.Contains(call, "[") || strings.Contains(call, ".?")
				for _, reference := range checked.NativeRep().ReferenceMap() {
					called = called || slices.Contains(reference.OverloadIDs, o.ID())
				}
				if !called {
					t.Errorf("%s: %s does not call it: add an expression to written", o.ID(), call)
				}
				tried++
				whole, parts := evaluator(t, c, call), evaluator(t, c, "["+strings.Join(args, ", ")+"]")
				grows, few := false, false
				for _, kind := range kinds {
					if strings.Contains(call, `"x"`) || kind == "digits" {
						growth := boundedBy(t, o.ID()+" of "+kind, texts[kind], whole, parts, strings.Contains(call, `"y"`))
						grows = grows || growth
						few = few || kind == "commas" && !growth && strings.Contains(call, "split")
					}
				}
				if short[name]+short[o.ID()] == "" && (few || !grows && strings.Contains(call, `"x"`)) {
					t.Errorf("%s: its cost does not grow with the text: add the function to works, or to short with the reason", o.ID())
				}
			}
		})
	}
	if tried < 150 {
		t.Errorf("only %d overloads were tried", tried)
	}
}

// boundedBy evaluates a call and, alone, its arguments, with texts of two lengths. It reports whether the cost grows with the text.
func boundedBy(t *testing.T, what string, text func(int) string, call, arguments func(*corev1.Pod) result, more bool) (grows bool) {
	others := []func(string) (y, z string){
		func(x string) (string, string) { return x, x },
		func(x string) (string, string) { return x[:1], x },
		func(x string) (string, string) { return nearly(x), "" },
	}
	if !more {
		others = others[:1]
	}
	for i, other := range others {
		var costs [2]uint64
		sizes := [2]int{4 << 10, *longest}
		for j, n := range sizes {
			x := text(n)
			y, z := other(x)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{"x": x, "y": y, "z": z}}}
			all, before := call(pod), arguments(pod)
			if before.failed {
				continue // there is no call
			}
			cost, allocated := all.cost-min(all.cost, before.cost), all.allocated-min(all.allocated, before.allocated)
			if allocated > bytesPerCall+bytesPerUnit*cost {
				t.Errorf("%s, others %d: %d bytes of text: the call allocates %d bytes and costs %d", what, i, len(x), allocated, cost)
			}
			costs[j] = cost
			grows = grows || j == 1 && (all.exceeded || 1000*(cost-min(cost, costs[0])) >= leastPerByte*uint64(sizes[1]-sizes[0]))
		}
	}
	return grows
}

type result struct {
	cost, allocated  uint64
	failed, exceeded bool
}

// evaluator returns what one evaluation of the expression takes.
func evaluator(t *testing.T, c *compiler, text string) func(*corev1.Pod) result {
	checked, issues := c.env.Compile(text)
	if issues.Err() != nil {
		t.Fatal(text, ": ", issues.Err())
	}
	program, err := c.counting(checked, limit{costLimit, partSteps})
	if err != nil {
		t.Fatal(text, ": ", err)
	}
	p := &rules{schema: c.schema}
	return func(pod *corev1.Pod) result {
		vars := p.request(pod, new(snapshot.View))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, cost, err := count(program, vars)
		runtime.ReadMemStats(&after)
		return result{cost: cost, allocated: after.TotalAlloc - before.TotalAlloc, failed: err != nil, exceeded: exceeds(err)}
	}
}

// expressionOf returns an expression that calls the overload, and its arguments.
func expressionOf(name string, o interface {
	ID() string
	ArgTypes() []*types.Type
	IsMemberFunction() bool
}) (call string, args []string, ok bool) {
	texts := 0
	for _, of := range o.ArgTypes() {
		all := arguments[kindOf(of)]
		if len(all) == 0 {
			return "", nil, false
		}
		args = append(args, all[min(texts, len(all)-1)])
		if kindOf(of) == "string" || kindOf(of) == "int" {
			texts++
		}
	}
	form, own := written[o.ID()]
	if !own {
		form, own = written[name]
	}
	switch {
	case slices.Contains(zoned, name) && len(args) == 2:
		return args[0] + "." + name + `("Europe/Berlin")`, dynamic(args[:1]), true
	case own && strings.Contains(form, "%s") && !strings.Contains(form, ".format("):
		values := make([]any, len(args))
		for i, a := range args {
			values[i] = a
		}
		return fmt.Sprintf(form, values...), nil, true
	case own:
		return form, nil, true
	case strings.HasPrefix(name, "_") && strings.HasSuffix(name, "_") && len(args) == 2:
		op := strings.Trim(name, "_")
		if op == "in" {
			return "(" + args[0] + " in " + args[1] + ")", dynamic(args), true
		}
		return "(" + args[0] + " " + op + " " + args[1] + ")", dynamic(args), true
	case o.IsMemberFunction():
		return args[0] + "." + name + "(" + strings.Join(args[1:], ", ") + ")", dynamic(args), true
	}
	return name + "(" + strings.Join(args, ", ") + ")", dynamic(args), true
}

// dynamic returns the arguments as elements of one list.
func dynamic(args []string) []string {
	var all []string
	for _, a := range args {
		all = append(all, "dyn("+a+")")
	}
	return all
}

// kindOf returns the key of arguments for a type.
func kindOf(t *types.Type) string {
	of := func(container string, element *types.Type) string {
		switch element.Kind() {
		case types.TypeParamKind:
			return container + "(string)"
		case types.ListKind:
			return container + "(list)"
		}
		return container + "(" + kindOf(element) + ")"
	}
	switch t.Kind() {
	case types.TypeParamKind:
		return "string"
	case types.ListKind:
		return strings.Replace(of("list", t.Parameters()[0]), "list(optional(string))", "list(optional)", 1)
	case types.MapKind:
		return "map"
	case types.DurationKind:
		return "duration"
	case types.TimestampKind:
		return "timestamp"
	case types.OpaqueKind:
		if t.TypeName() == "optional_type" {
			switch t.Parameters()[0].Kind() {
			case types.ListKind:
				return "optional(list)"
			case types.MapKind:
				return "optional(map)"
			}
			return "optional"
		}
	}
	return t.TypeName()
}

// counted is a text that counts how often it is compared.
type counted struct {
	types.String
	comparisons *uint64
}

func (c counted) Equal(other ref.Val) ref.Val {
	*c.comparisons++
	return c.String.Equal(other.(counted).String)
}

func (c counted) Compare(other ref.Val) ref.Val {
	*c.comparisons++
	return c.String.Compare(other.(counted).String)
}

// The cost of a function that compares elements is at least a quarter of the number of comparisons beyond those of lists of usual size.
func TestComparisonsAreCounted(t *testing.T) {
	c := newShared(t)
	env, err := c.env.Extend(cel.Variable("list", types.NewListType(types.StringType)), cel.Variable("other", types.NewListType(types.StringType)),
		cel.Variable("same", types.NewListType(types.StringType)), cel.Variable("none", types.NewListType(types.StringType)))
	if err != nil {
		t.Fatal(err)
	}
	c.env = env
	for _, text := range []string{
		`list.distinct()`, `list.sort()`, `list.sortBy(x, x)`, `list.isSorted()`, `list.min()`, `list.max()`, `list.indexOf(other[0])`, `list.lastIndexOf(other[0])`,
		`list.includes(other[0])`, `sets.intersects(list, none)`, `list == same`, `list != same`, `[list, list] == [same, same]`, `same in [list, list]`, `sets.contains(list, other)`, `sets.equivalent(list, other)`, `sets.intersects(list, other)`,
		`list == other`, `list != other`, `other[0] in list`, `[list, list] == [other, other]`, `other in [list, list, list]`, `list + list == other + other`,
	} {
		checked, issues := c.env.Compile(text)
		if issues.Err() != nil {
			t.Fatal(text, ": ", issues.Err())
		}
		program, err := c.counting(checked, limit{costLimit, partSteps})
		if err != nil {
			t.Fatal(text, ": ", err)
		}
		for _, n := range []int{10, 300, 3000} {
			comparisons := uint64(0)
			list, other, none := make([]ref.Val, n), make([]ref.Val, n), make([]ref.Val, n)
			for i := range list {
				list[i] = counted{types.String(fmt.Sprintf("%05d", i)), &comparisons}
				other[n-1-i], none[i] = list[i], counted{"none", &comparisons}
			}
			_, cost, err := program.ContextEval(spentSteps, map[string]any{"list": types.NewRefValList(c.schema, list), "other": types.NewRefValList(c.schema, other),
				"same": types.NewRefValList(c.schema, slices.Clone(list)), "none": types.NewRefValList(c.schema, none)})
			spent := uint64(costLimit)
			if a := cost.ActualCost(); err == nil && a != nil {
				spent = *a
			}
			if comparisons > 4*spent+usualList || err != nil && !exceeds(err) {
				t.Errorf("%s of %d elements: %d comparisons cost %d (%v)", text, n, comparisons, spent, err)
			}
			if err != nil && comparisons > 4*costLimit {
				t.Errorf("%s of %d elements: %d comparisons before the limit ends the evaluation", text, n, comparisons)
			}
		}
	}
}

// The cost counts what a call does with texts without allocating.
func TestWorkOnTextsIsCounted(t *testing.T) {
	c := newShared(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{"x": strings.Repeat("a", 2000), "y": strings.Repeat("a", 1000) + "b", "z": strings.Repeat(",", 2000)}}, Spec: corev1.PodSpec{Containers: make([]corev1.Container, 3000)}}
	for text, least := range map[string]uint64{
		`pod.metadata.annotations["x"].indexOf(pod.metadata.annotations["y"])`:       1000 * 1000 / 10,
		`pod.metadata.annotations["x"].lastIndexOf(pod.metadata.annotations["y"])`:   1000 * 1000 / 10,
		`pod.metadata.annotations["x"].matches("a{500}b")`:                           200 * 500 / 4,
		`pod.metadata.annotations["x"].find("a{500}b")`:                              200 * 500 / 4,
		`pod.metadata.annotations["x"].findAll("a{500}b")`:                           200 * 500 / 4,
		`timestamp("2026-01-02T03:04:05Z").getHours("Europe/Berlin")`:                2000,
		`pod.metadata.annotations["x"].matches("(a{1000}){1}(a{1000}){1}(a{1000})")`: 200 * 3000 / 4,
		`pod.metadata.annotations["z"].split(",").includes("q")`:                     2000,
		`pod.metadata.annotations["x"].replace("a", "bb")`:                           (2*2000 + 2000*2) / 10,
		`pod.spec == pod.spec`: 3000, // its containers
		`url("https://user@host/%2F" + pod.metadata.annotations["x"] + "?" + pod.metadata.annotations["x"]) == url("https://host")`: 2 * 200,
	} {
		if got := evaluator(t, c, text)(pod); got.cost < least || got.cost > 2*least+1000 {
			t.Errorf("%s costs %d, want at least %d, and at most about twice that", text, got.cost, least)
		}
	}
	long := pod.DeepCopy()
	long.Annotations["x"] = strings.Repeat("a", 240<<10)
	for _, text := range []string{`pod.metadata.annotations["x"].matches("a{1000}b")`, `pod.metadata.annotations["x"].replace("a", pod.metadata.annotations["y"])`} {
		if got := evaluator(t, c, text)(long); !got.exceeded || got.allocated > 64<<10 {
			t.Errorf("%s: %+v, want that the limit ends the evaluation before the call", text, got)
		}
	}
}

// An argument whose content can cost anything must be a literal.
func TestComputedPatternsAreRefused(t *testing.T) {
	c := newShared(t)
	for _, text := range []string{
		`node.metadata.name.matches(pod.metadata.name)`, `matches("a", pod.metadata.name)`, `node.metadata.name.find(pod.metadata.name) == ""`,
		`pod.metadata.name.findAll(node.metadata.name).size() == 0`, `["a"].exists(p, pod.metadata.name.matches(p))`,
		`pod.metadata.name.format([1.0]) == ""`, `pod.metadata.creationTimestamp.getHours(pod.metadata.name) == 1`, `lists.range(int(pod.metadata.name)).size() == 1`,
	} {
		if _, errs := c.compile(nil, text, ^deps(0), types.BoolType); len(errs) == 0 {
			t.Errorf("%s is accepted", text)
		}
	}
	for _, text := range []string{`pod.metadata.name.matches("a")`, `"%s".format([pod.metadata.name]) == ""`, `pod.metadata.creationTimestamp.getHours("UTC") == 1`} {
		if _, errs := c.compile(nil, text, ^deps(0), types.BoolType); len(errs) > 0 {
			t.Errorf("%s: %v", text, errs)
		}
	}
}

// A quantity that takes long to read is no quantity.
func TestQuantitiesAreBounded(t *testing.T) {
	c := newShared(t)
	for text, want := range map[string]bool{"1Gi": true, "1e3": true, "1e-9999999": false, "1E99999999": false, strings.Repeat("1", 64): true, strings.Repeat("1", 65): false} {
		checked, issues := c.env.Compile(fmt.Sprintf(`isQuantity(%q)`, text))
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		program, err := c.env.Program(checked)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := program.Eval(cel.NoVars()); err != nil || got.Value() != want {
			t.Errorf("isQuantity(%.20q) is %v, %v", text, got, err)
		}
	}
}
