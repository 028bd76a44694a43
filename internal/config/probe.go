package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"outboard.dev/outboard/internal/config/strictyaml"
)

// prober derives from [Parse] what Go types and tags do not express: which fields are required, alone or together. It parses documents
// in which one field is missing or invalid.
//
// Whether a value is valid may depend on other fields. So each document is tried without other
// fields, with all other fields, and with each enum value and boolean of the fields beside and
// around it; the schema contains only what is an error in all of these documents. Required fields are
// known when a schema is probed for the second time.
type prober struct {
	parse func(document any) Errors

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
	case s.Type.Has("string") && s.Enum == nil && s.Pattern == "":
		if p.rejected(path, documents, "") {
			s.MinLength = 1
		}
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
		all[name] = sampleOf(property)
		choices := choicesOf(property)
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

// choicesOf returns the values of a field that has few.
func choicesOf(s *strictyaml.Schema) []any {
	if s.Type.Has("boolean") {
		return []any{false, true}
	}
	return slices.DeleteFunc(slices.Clone(s.Enum), func(value any) bool { return value == nil })
}

// sampleOf returns a value that the schema allows.
func sampleOf(s *strictyaml.Schema) any {
	choices := choicesOf(s)
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
			fields[name] = sampleOf(property)
		}
		return fields
	case s.Type.Has("array"):
		return []any{sampleOf(s.Items)}
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

// rejected reports whether the value at path is an error in all documents. Documents in which something beside the value is missing do
// not count, because the value may not have been checked there.
func (p *prober) rejected(path string, documents []around, value any) (always bool) {
	for _, document := range documents {
		errs := p.parse(document(value))
		if slices.ContainsFunc(errs, func(e *Error) bool { return e.Path == path }) {
			always = true
		} else if !slices.ContainsFunc(errs, func(e *Error) bool { return missing(e) && besides(e.Path, path) }) {
			return false
		}
	}
	return always
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
			for _, value := range slices.Concat(choicesOf(property), []any{sampleOf(property)}) {
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
		samples[name] = sampleOf(property)
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

// child returns the path of a field, in the form of errors.
func child(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// parent returns the path of what has the field or the item at path.
func parent(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }
