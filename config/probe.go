package config

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"outboard.dev/outboard/config/strictyaml"
)

// prober derives from [Parse] what Go types do not express: which values of a field are allowed,
// and which fields are required. It parses documents in which one field is invalid, and reads the
// rules from the errors.
//
// Whether a value is valid may depend on other fields. So each document is tried without other
// fields, with all other fields, and with each enum value and boolean of the fields beside and
// around it; the schema contains only what is an error in all of these documents. Enum values and
// required fields are known when a schema is probed for the second time.
type prober struct {
	parse func(document any) Errors

	enums  map[string][]any    // by path: the values of a string with an enum
	needed map[string][]string // by path: the required fields of a mapping
}

// around returns a document with a value in it.
type around func(value any) any

// absent is the value of a field that is left out.
type absent struct{}

// with returns a copy of the fields with one more, or without it if value is absent.
func with(fields map[string]any, name string, value any) map[string]any {
	all := merged(fields, map[string]any{name: value})
	if _, ok := value.(absent); ok {
		delete(all, name)
	}
	return all
}

func merged(a, b map[string]any) map[string]any {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}

// isNumber reports whether the value is a number and nothing else.
func isNumber(s *strictyaml.Schema) bool {
	return (s.Type.Has("integer") || s.Type.Has("number")) && !s.Type.Has("string")
}

// value probes the value at path, and its contents. documents are those in which it is tried.
func (p *prober) value(s *strictyaml.Schema, path string, documents []around) {
	switch {
	case s.Properties != nil:
		p.object(s, path, documents)
	case s.Type.Has("object"):
		if values, ok := s.AdditionalProperties.(*strictyaml.Schema); ok {
			p.value(values, path+"[x]", inside(documents, func(value any) any { return map[string]any{"x": value} }))
		}
	case s.Type.Has("array"):
		if p.always(path, documents, []any{}) {
			s.MinItems = 1
		}
		p.value(s.Items, path+"[0]", inside(documents, func(value any) any { return []any{value} }))
	case isNumber(s):
		p.limits(s, path, documents)
	case s.Type.Has("string") && s.Enum == nil && s.Pattern == "":
		p.text(s, path, documents)
	}
}

func inside(documents []around, wrap around) []around {
	var all []around
	for _, document := range documents {
		all = append(all, func(value any) any { return document(wrap(value)) })
	}
	return all
}

// object probes the fields of a mapping.
func (p *prober) object(s *strictyaml.Schema, path string, documents []around) {
	beside := p.beside(s, path)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		var tried []around
		for i, document := range documents {
			fields := beside
			if i > 0 {
				fields = beside[:1]
			}
			for _, fields := range fields {
				tried = append(tried, func(value any) any { return document(with(fields, name, value)) })
			}
		}
		if p.always(child(path, name), tried, absent{}) {
			s.Require(name)
		}
		p.value(s.Properties[name], child(path, name), tried)
	}
	p.needed[path] = s.Required
	p.alternatives(s, path, documents)
	p.exclusions(s, path, documents, beside[0])
}

// beside returns the contents of a mapping with which each of its fields is tried. The first one
// has only the required fields.
func (p *prober) beside(s *strictyaml.Schema, path string) []map[string]any {
	least, all, small, large := map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}
	var chosen []map[string]any
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		all[name] = p.sample(property, child(path, name))
		choices := p.choices(property, child(path, name))
		switch {
		case len(choices) == 1 || slices.Contains(p.needed[path], name):
			least[name] = all[name]
		case isNumber(property):
			small[name], large[name] = 0, 1<<30
		}
		for _, value := range choices {
			chosen = append(chosen, map[string]any{name: value})
		}
	}
	beside := []map[string]any{least}
	for _, fields := range append(chosen, small, large) {
		beside = append(beside, merged(least, fields), merged(all, fields))
	}
	return beside
}

// choices returns the values of a field that has few.
func (p *prober) choices(s *strictyaml.Schema, path string) []any {
	if s.Type.Has("boolean") {
		return []any{false, true}
	}
	if s.Enum != nil {
		return s.Enum
	}
	return p.enums[path]
}

// sample returns a value that the schema allows.
func (p *prober) sample(s *strictyaml.Schema, path string) any {
	choices := p.choices(s, path)
	switch {
	case len(choices) > 0:
		return choices[len(choices)-1]
	case isNumber(s):
		return 1
	case s.Default != nil:
		return s.Default
	case s.Type.Has("object"):
		fields := map[string]any{}
		for name, property := range s.Properties {
			fields[name] = p.sample(property, child(path, name))
		}
		return fields
	case s.Type.Has("array"):
		return []any{p.sample(s.Items, path+"[0]")}
	}
	return "x"
}

// always reports whether the value at path is an error in all documents.
func (p *prober) always(path string, documents []around, value any) bool {
	for _, document := range documents {
		if !slices.ContainsFunc(p.parse(document(value)), func(e *Error) bool { return e.Path == path }) {
			return false
		}
	}
	return true
}

// rejected reports whether the value at path is an error in all documents, and returns the rules
// that it violates. Documents in which something beside the value is missing do not count, because
// the value may not have been checked there.
func (p *prober) rejected(path string, documents []around, value any) (rules []string, always bool) {
	for _, document := range documents {
		errs := p.parse(document(value))
		found := len(rules)
		for _, e := range errs {
			if e.Path == path {
				rules = append(rules, e.Rule)
			}
		}
		if found < len(rules) {
			always = true
		} else if !slices.ContainsFunc(errs, func(e *Error) bool { return missing(e) && besides(e.Path, path) }) {
			return nil, false
		}
	}
	return rules, always
}

// besides reports whether other is the path of the parent of the value at path, or of another value in that.
func besides(other, path string) bool { return other == parent(path) || parent(other) == parent(path) }

func missing(e *Error) bool { return e.Kind == "Required value" }

// alternatives finds the fields of a mapping of which at least one, or exactly one, is required: without all of them, the mapping itself
// is reported as lacking something, and with any of them it is not.
func (p *prober) alternatives(s *strictyaml.Schema, path string, documents []around) {
	if !p.always(path, documents, map[string]any{}) {
		return
	}
	lacking := func(fields map[string]any) []string {
		var rules []string
		for _, e := range p.parse(documents[0](fields)) {
			if e.Path == path && missing(e) {
				rules = append(rules, e.Rule)
			}
		}
		return rules
	}
	for _, rule := range lacking(map[string]any{}) {
		given := map[string]any{} // by field: a value with which nothing is lacking
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			property := s.Properties[name]
			at := child(path, name)
			for _, value := range slices.Concat(p.choices(property, at), []any{p.sample(property, at)}) {
				if !slices.Contains(lacking(map[string]any{name: value}), rule) {
					given[name] = value
					break
				}
			}
		}
		var each []*strictyaml.Schema
		exclusive := p.exclusive(path, documents[0], given)
		for _, name := range slices.Sorted(maps.Keys(given)) {
			alternative := &strictyaml.Schema{Required: []string{name}}
			var unset []any
			for _, value := range []any{nil, "", []any{}, map[string]any{}} {
				if exclusive && slices.Contains(lacking(map[string]any{name: value}), rule) {
					unset = append(unset, value)
				}
			}
			if unset != nil {
				alternative.Properties = map[string]*strictyaml.Schema{name: {Not: &strictyaml.Schema{Enum: unset}}}
			}
			each = append(each, alternative)
		}
		switch {
		case each == nil:
		case exclusive:
			s.AllOf = append(s.AllOf, &strictyaml.Schema{OneOf: each})
		default:
			s.AllOf = append(s.AllOf, &strictyaml.Schema{AnyOf: each})
		}
	}
}

// exclusive reports whether any two of the given fields of the mapping at path are forbidden together, although each is allowed alone.
func (p *prober) exclusive(path string, document around, given map[string]any) bool {
	forbidden := func(names ...string) bool {
		fields := map[string]any{}
		for _, name := range names {
			fields[name] = given[name]
		}
		return slices.ContainsFunc(p.parse(document(fields)), func(e *Error) bool {
			return e.Kind == "Forbidden" && slices.ContainsFunc(names, func(name string) bool { return e.Path == child(path, name) })
		})
	}
	names := slices.Sorted(maps.Keys(given))
	for i, a := range names {
		if forbidden(a) {
			return false
		}
		for _, b := range names[:i] {
			if !forbidden(a, b) {
				return false
			}
		}
	}
	return len(names) > 1
}

// togetherRule is how errors name the other one of two fields that exclude each other.
var togetherRule = regexp.MustCompile(`^cannot be set together with (\w+)`)

// exclusions finds pairs of optional fields of a mapping that cannot be set together. least has the required fields.
func (p *prober) exclusions(s *strictyaml.Schema, path string, documents []around, least map[string]any) {
	// together reports whether the error about both fields is in the document with these values, and whether a has another error.
	together := func(document around, a, b string, values map[string]any) (found, wrong bool) {
		for _, e := range p.parse(document(merged(least, values))) {
			other := togetherRule.FindStringSubmatch(e.Rule)
			switch {
			case e.Path == child(path, a) && other != nil && other[1] == b || e.Path == child(path, b) && other != nil && other[1] == a:
				found = true
			case e.Path == child(path, a):
				wrong = true
			}
		}
		return found, wrong
	}
	samples := map[string]any{}
	for name, property := range s.Properties {
		samples[name] = p.sample(property, child(path, name))
	}
	var pairs [][2]string
	for _, e := range p.parse(documents[0](merged(least, samples))) {
		if other := togetherRule.FindStringSubmatch(e.Rule); other != nil && parent(e.Path) == path && s.Properties[other[1]] != nil {
			pairs = append(pairs, [2]string{strings.TrimPrefix(e.Path, child(path, "")), other[1]})
		}
	}
	for _, pair := range pairs {
		a, b := pair[0], pair[1]
		always := !slices.ContainsFunc(documents, func(document around) bool {
			found, _ := together(document, a, b, map[string]any{a: samples[a], b: samples[b]})
			return !found
		})
		if !always || s.Alternatives(a, b) {
			continue
		}
		both := &strictyaml.Schema{Properties: map[string]*strictyaml.Schema{}, Required: []string{a, b}}
		for _, names := range [][2]string{{a, b}, {b, a}} {
			var unset []any
			for _, value := range []any{nil, "", 0, false, []any{}, map[string]any{}} {
				if found, wrong := together(documents[0], names[0], names[1], map[string]any{names[0]: value, names[1]: samples[names[1]]}); !found && !wrong {
					unset = append(unset, value)
				}
			}
			if unset != nil {
				both.Properties[names[0]] = &strictyaml.Schema{Not: &strictyaml.Schema{Enum: unset}}
			}
		}
		s.AllOf = append(s.AllOf, &strictyaml.Schema{Not: both})
	}
}

// notInEnum is a string that is in no enum.
const notInEnum = "not in an enum"

var enumRule = regexp.MustCompile(`^supported values: ((?:"(?:[^"\\]|\\.)*"(?:, )?)+)`)

// text finds the values of a string with an enum, and whether a string can be empty.
func (p *prober) text(s *strictyaml.Schema, path string, documents []around) {
	if _, always := p.rejected(path, documents, ""); always {
		s.MinLength = 1
	}
	rules, always := p.rejected(path, documents, notInEnum)
	if !always {
		return
	}
	for _, rule := range rules {
		list := enumRule.FindStringSubmatch(rule)
		if list == nil {
			continue
		}
		for rest := list[1]; rest != ""; rest = strings.TrimPrefix(rest, ", ") {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				break
			}
			rest = rest[len(quoted):]
			if value, err := strconv.Unquote(quoted); err == nil && !slices.Contains(s.Enum, any(value)) {
				s.Enum = append(s.Enum, value)
			}
		}
	}
	if s.Enum == nil {
		return
	}
	if s.MinLength == 0 {
		s.Enum = append(s.Enum, "")
	}
	s.MinLength = 0 // the enum says so
	p.enums[path] = slices.Clone(s.Enum)
	if s.Type.Has("null") {
		s.Enum = append(s.Enum, nil)
	}
}

// How errors express the smallest and the largest number.
var (
	lowRule  = regexp.MustCompile(`^must be .*?(?:between|at least|greater than or equal to|greater than|more than) ([^ ,]+)`)
	highRule = regexp.MustCompile(`^must be .*?(?:between [^ ,]+ and|at most|less than or equal to|less than) ([^ ,]+)`)
)

// limits finds the smallest and the largest number allowed.
func (p *prober) limits(s *strictyaml.Schema, path string, documents []around) {
	least, most := -1e300, 1e300
	integer := s.Type.Has("integer")
	if integer {
		least, most = -(1 << 53), 1<<53
	}
	if s.Minimum != nil {
		least = *s.Minimum
	}
	if s.Maximum != nil {
		most = *s.Maximum
	}
	reject := func(value float64) bool {
		_, always := p.rejected(path, documents, value)
		return always
	}
	next := func(limit, direction float64) float64 {
		if integer {
			return limit + direction
		}
		return math.Nextafter(limit, direction*math.Inf(1))
	}
	rules, always := p.rejected(path, documents, least)
	if limit, ok := loosest(rules, lowRule, math.Min); always && ok {
		if limit > 0 && !reject(0) {
			limit = 0 // often means that the field is not set
		}
		switch {
		case reject(limit) && integer:
			s.Minimum = new(limit + 1)
		case reject(limit):
			s.ExclusiveMinimum = &limit
		case reject(next(limit, -1)):
			s.Minimum = &limit
		}
	}
	rules, always = p.rejected(path, documents, most)
	if limit, ok := loosest(rules, highRule, math.Max); always && ok && !reject(limit) && reject(next(limit, 1)) {
		s.Maximum = &limit
	}
}

// loosest returns the loosest of the limits in the rules.
func loosest(rules []string, limit *regexp.Regexp, of func(a, b float64) float64) (loosest float64, ok bool) {
	for _, rule := range rules {
		match := limit.FindStringSubmatch(rule)
		if match == nil {
			continue
		}
		number, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			continue // another field, or a duration
		}
		if ok {
			number = of(loosest, number)
		}
		loosest, ok = number, true
	}
	return loosest, ok
}

// child returns the path of a field, in the form of errors.
func child(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// parent returns the path of what has the field or the item at path.
func parent(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }
