package rules

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	corev1 "k8s.io/api/core/v1"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

const (
	// shownValue bounds the text of a value, in characters.
	shownValue = 60
	// shownParts bounds the number of parts of an expression that are shown.
	shownParts = 6
)

func (c *cycle) Explain(n *snapshot.Node) []string {
	if n == nil {
		return c.silent
	}
	var lines []string
	for _, f := range c.filters {
		v, err := c.eval(f.expression, n)
		lines = append(lines, c.describe(f, n, v, err))
	}
	for _, s := range c.scores {
		v, err := c.eval(s.expression, n)
		rated, wrong := c.rate(s, n)
		line := c.describe(s, n, v, cmp.Or(err, wrong))
		if wrong == nil && v.Equal(types.Double(rated)) != types.True {
			line += fmt.Sprintf("; counts as %g", rated)
		}
		lines = append(lines, line)
	}
	return lines
}

// describe returns the result of the rule with the parts behind it, as text.
func (c *cycle) describe(r *rule, n *snapshot.Node, v ref.Val, err error) string {
	text, parts := fmt.Sprintf("rule %s: %s", r.name, display(v)), c.missing(r.expression, n)
	if err != nil {
		text = fmt.Sprintf("rule %s: unknown", r.name)
		if len(parts) == 0 || exceeds(err) {
			parts = []string{err.Error()}
		}
	}
	limit := len(parts) + shownParts
	for _, p := range r.expression.parts {
		if p == r.expression.whole || p.class == constant || c.isStale(p, n) {
			continue
		}
		text := strings.Join(strings.Fields(p.text), " ")
		parts = append(parts, fmt.Sprintf("%s is %s", text, display(c.value(p, n))))
	}
	if len(parts) > 0 {
		text += " (" + policy.Join(parts, limit) + ")"
	}
	return text
}

// missing says which signals that the expression reads have no current value.
func (c *cycle) missing(e *expression, n *snapshot.Node) []string {
	var missing []string
	for _, p := range e.parts {
		if c.isStale(p, n) {
			name := c.policy.compiled.signals[p.index]
			missing = append(missing, c.signals[p.index].Of(n).Missing(name, "the node"))
		}
	}
	for _, r := range e.reads {
		if r.key == nil {
			continue
		}
		if v := c.view.Signal(r.signal).Get(*r.key); !v.Current() {
			missing = append(missing, v.Missing(r.signal, *r.key))
		}
	}
	return missing
}

// display returns a short text of a value.
func display(v ref.Val) string {
	var text string
	switch v := v.(type) {
	case nil:
		return "nothing"
	case *types.Err:
		return "unknown (" + v.Error() + ")"
	case types.String:
		text = strconv.Quote(string(v))
	case apiservercel.Quantity:
		q := v.DeepCopy()
		text = q.String()
	case *object:
		text = "a " + strings.TrimPrefix(v.kind.name, "v1.")
	case *types.Optional:
		if !v.HasValue() {
			return "nothing"
		}
		return display(v.GetValue())
	default:
		text = displayNative(v)
	}
	if characters := []rune(text); len(characters) > shownValue {
		return string(characters[:shownValue]) + "…"
	}
	return text
}

func displayNative(v ref.Val) string {
	if native, err := v.ConvertToNative(reflect.TypeFor[[]string]()); err == nil {
		return fmt.Sprintf("%q", native)
	}
	switch native := v.Value().(type) {
	case bool, int64, uint64, float64:
		return fmt.Sprint(native)
	case map[string]string:
		return fmt.Sprintf("%q", native)
	case corev1.ResourceList:
		return displayResources(native)
	}
	return "a " + v.Type().TypeName()
}

func displayResources(list corev1.ResourceList) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name].DeepCopy()
		all = append(all, fmt.Sprintf("%s %s", name, q.String()))
	}
	return strings.Join(all, ", ")
}
