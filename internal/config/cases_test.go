package config_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/config/strictyaml"
)

var (
	caseCount = flag.Int("cases", 3000, "how many files TestSchema generates")
	caseSeed  = flag.Uint64("seed", 1, "which files TestSchema generates")
)

// checkCases checks that the schema and the loader agree about generated files: one half from the schema, the other half changed from valid
// ones.
func checkCases(t *testing.T, schema *jsonschema.Schema, valid []string) {
	g := generator{Rand: rand.New(rand.NewPCG(*caseSeed, 0)), values: map[string][]any{}, texts: map[string]*rapid.Generator[string]{}}
	var documents []any
	for _, text := range valid {
		var document any
		if err := yaml.Unmarshal([]byte(text), &document); err != nil {
			t.Fatal(err)
		}
		documents = append(documents, document)
		g.gather("", document)
	}
	root := config.Schema(realTypes, nil)
	outcomes, reported := map[string]int{}, map[string]bool{}
	for i := range *caseCount {
		generated := i%2 == 0
		var document any
		if generated {
			document = g.value("", root)
		} else {
			document = g.change(documents[g.IntN(len(documents))])
		}
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		needed, differences := compare(t, schema, string(text), realTypes)
		accepted := len(rejections(t, schema, string(text))) == 0
		if generated && !accepted {
			differences = append(differences, fmt.Sprintf("the schema rejects a file generated from it at %q", rejections(t, schema, string(text))))
		}
		switch {
		case !accepted:
			outcomes["both refuse"]++
		case len(needed) == 0:
			outcomes["both accept"]++
		}
		slices.Sort(needed)
		for _, why := range slices.Compact(needed) {
			outcomes[why]++
		}
		for _, difference := range differences {
			outcomes["differences"]++
			if kind := varying.ReplaceAllString(difference, ""); !reported[kind] && len(reported) < 30 {
				reported[kind] = true
				t.Errorf("%s\n%.3000s", difference, text)
			}
		}
	}
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		t.Logf("%6d %s", outcomes[outcome], outcome)
	}
	for _, outcome := range []string{"both accept", "both refuse"} {
		if outcomes[outcome]*50 < *caseCount {
			t.Errorf("%s in only %d of %d cases", outcome, outcomes[outcome], *caseCount)
		}
	}
}

// varying is what differs between two reports of the same difference.
var varying = regexp.MustCompile(`\[[0-9]+\]|f:[0-9]+:|"[^"]*"|; it finds.*|-?[0-9]+`)

// generator generates values of files.
type generator struct {
	*rand.Rand
	values map[string][]any                    // those in valid files, by field
	texts  map[string]*rapid.Generator[string] // by pattern
}

// gather adds the values of all fields in v.
func (g *generator) gather(name string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			g.values[name] = append(g.values[name], v[name])
			g.gather(name, v[name])
		}
	case []any:
		for _, item := range v {
			g.values[name] = append(g.values[name], item)
			g.gather(name, item)
		}
	}
}

func (g *generator) oneIn(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g *generator, all []T) T { return all[g.IntN(len(all))] }

// value returns a value of the field that the schema accepts.
func (g *generator) value(name string, s *strictyaml.Schema) any {
	if s.Const != nil {
		return s.Const
	}
	if s.Enum != nil {
		return pick(g, s.Enum)
	}
	types := s.Type
	if !g.oneIn(20) {
		types = slices.DeleteFunc(slices.Clone(types), func(name string) bool { return name == "null" })
	}
	if len(types) == 0 {
		return g.anything()
	}
	switch pick(g, types) {
	case "object":
		return g.object(s)
	case "array":
		list := []any{}
		for range s.MinItems + g.IntN(3)*g.IntN(2) {
			list = append(list, g.value(name, s.Items))
		}
		return list
	case "string":
		return g.text(name, s)
	case "boolean":
		return g.oneIn(2)
	case "integer":
		return int64(g.number(s))
	case "number":
		return g.number(s)
	}
	return nil
}

func (g *generator) object(s *strictyaml.Schema) map[string]any {
	o := map[string]any{}
	if values, ok := s.AdditionalProperties.(*strictyaml.Schema); ok {
		for range g.IntN(3) {
			o[pick(g, []string{"a", "b", "example.com/a"})] = g.value("", values)
		}
	}
	if len(s.AnyOf) > 0 {
		chosen := pick(g, s.AnyOf)
		name := chosen.Required[0]
		for o[name] = chosen.Properties[name].Const; o[name] == nil; {
			o[name] = g.value(name, s.Properties[name])
		}
	}
	absent := map[string]bool{}
	for _, rule := range s.AllOf {
		if len(rule.OneOf) > 0 {
			alternatives := slices.DeleteFunc(slices.Clone(rule.OneOf), func(s *strictyaml.Schema) bool { return s.Required == nil }) // without null
			chosen := g.IntN(len(alternatives))
			for i, alternative := range alternatives {
				name := alternative.Required[0]
				if i != chosen {
					absent[name] = true
					continue
				}
				for o[name] = nil; slices.ContainsFunc(alternative.Properties[name].Not.Enum, func(empty any) bool { return equal(empty, o[name]) }); {
					o[name] = g.value(name, s.Properties[name])
				}
			}
		}
		if rule.Not != nil {
			absent[pick(g, rule.Not.Required)] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if _, has := o[name]; has || absent[name] {
			continue
		}
		if slices.Contains(s.Required, name) || g.oneIn(6) {
			o[name] = g.value(name, s.Properties[name])
		}
	}
	for _, rule := range s.AllOf {
		if rule.If == nil {
			continue
		}
		for name, is := range rule.If.Properties {
			for inner, then := range rule.Then.Properties {
				if _, has := o[inner]; o[name] == is.Const && (has || slices.Contains(rule.Then.Required, inner) || g.oneIn(2)) {
					o[inner] = g.value(inner, then)
				}
			}
		}
	}
	return o
}

// equal reports whether two values are the same in JSON.
func equal(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func (g *generator) number(s *strictyaml.Schema) float64 {
	low, high := -3.0, 1000.0
	if s.Minimum != nil {
		low = *s.Minimum
	}
	if s.ExclusiveMinimum != nil {
		low = *s.ExclusiveMinimum + 1
	}
	if s.Maximum != nil {
		high = *s.Maximum
	}
	high = max(low, high)
	switch g.IntN(4) {
	case 0:
		return low
	case 1:
		return high
	}
	return float64(int64(low + g.Float64()*(high-low)))
}

// text returns a text that the schema accepts: most times one that the field has in a valid file.
func (g *generator) text(name string, s *strictyaml.Schema) string {
	pattern := regexp.MustCompile(s.Pattern)
	fits := func(v any) bool {
		text, ok := v.(string)
		return ok && len(text) >= s.MinLength && (s.MaxLength == 0 || len(text) <= s.MaxLength) && pattern.MatchString(text)
	}
	if known := slices.DeleteFunc(slices.Clone(g.values[name]), func(v any) bool { return !fits(v) }); len(known) > 0 && !g.oneIn(4) {
		return pick(g, known).(string)
	}
	for _, i := range g.Perm(len(texts)) {
		if fits(texts[i]) && (s.Pattern == "" || g.oneIn(2)) {
			return texts[i]
		}
	}
	if g.texts[s.Pattern] == nil {
		g.texts[s.Pattern] = rapid.StringMatching(s.Pattern)
	}
	for {
		if text := g.texts[s.Pattern].Example(g.IntN(1 << 30)); fits(text) {
			return text
		}
	}
}

// texts are texts of many kinds.
var texts = []string{
	"", "a", "A", "a-b", "a_b", "a.b", "a/b", "/a", "a b", " ", "0", "1", "0.5", "true", "null", "~", "10s", "5m", "1h", "48h", "1Gi", "128Mi", "-1", "1e9",
	"example.com/a", "nvidia.com/gpu", "cpu", ":0", "127.0.0.1:9999", "0.0.0.0:9998", "https://example.com/a", "{.items[*]}", "{.name}", "a == b", "*", "ä", "-a",
	strings.Repeat("a", 64), strings.Repeat("a", 300),
}

// anything returns a value of any kind.
func (g *generator) anything() any {
	return pick(g, []any{
		nil, true, false, "", "a", "none", "10s", "1Gi", int64(-1), int64(0), int64(1), int64(2), int64(50), int64(101), int64(100001), 0.5, -0.5,
		[]any{}, []any{"a"}, []any{"a", "a"}, []any{int64(1)}, map[string]any{}, map[string]any{"name": "a"}, []any{nil},
	})
}

// change returns a copy of a valid file with one to three changes.
func (g *generator) change(document any) any {
	text, err := json.Marshal(document)
	if err != nil {
		panic(err) // it was decoded from YAML
	}
	var changed any
	_ = json.Unmarshal(text, &changed)
	for range 1 + g.IntN(3)*g.IntN(2) {
		var places []func()
		g.places(changed, &places)
		if len(places) > 0 {
			pick(g, places)()
		}
	}
	return changed
}

// places adds a change for each field and item in v.
func (g *generator) places(v any, places *[]func()) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			*places = append(*places, func() { g.changeField(v, name) })
			g.places(v[name], places)
		}
	case []any:
		for i := range v {
			*places = append(*places, func() { v[i] = pick(g, []any{g.anything(), v[g.IntN(len(v))]}) })
			g.places(v[i], places)
		}
	}
}

func (g *generator) changeField(in map[string]any, name string) {
	switch g.IntN(8) {
	case 0, 1:
		delete(in, name)
	case 2:
		in[name] = g.anything()
	case 3:
		in[name+"x"] = in[name]
	case 4:
		other := pick(g, slices.Sorted(maps.Keys(g.values)))
		in[other] = pick(g, g.values[other])
	case 5:
		if _, ok := in[name].(string); ok {
			in[name] = pick(g, texts)
		}
	case 6:
		if number, ok := in[name].(float64); ok {
			in[name] = pick(g, []float64{-1, 0, number * 1000, number + 0.5, -number})
		}
	default:
		if reflect.ValueOf(in[name]).IsValid() && len(g.values[name]) > 0 {
			in[name] = pick(g, g.values[name])
		}
	}
}
