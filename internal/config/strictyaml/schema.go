package strictyaml

import (
	"encoding"
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"outboard.dev/outboard/policy/fields"
)

// Schema is a JSON Schema of draft 7, with the keywords that configurations need.
type Schema struct {
	Draft            string             `json:"$schema,omitempty"`
	Title            string             `json:"title,omitempty"`
	Description      string             `json:"description,omitempty"`
	Type             SchemaTypes        `json:"type,omitempty"`
	Const            any                `json:"const,omitempty"`
	Enum             []any              `json:"enum,omitempty"`
	Default          any                `json:"default,omitempty"`
	Pattern          string             `json:"pattern,omitempty"`
	MinLength        int                `json:"minLength,omitempty"`
	MaxLength        int                `json:"maxLength,omitempty"`
	Minimum          *float64           `json:"minimum,omitempty"`
	ExclusiveMinimum *float64           `json:"exclusiveMinimum,omitempty"`
	Maximum          *float64           `json:"maximum,omitempty"`
	MinItems         int                `json:"minItems,omitempty"`
	MaxItems         int                `json:"maxItems,omitempty"`
	Items            *Schema            `json:"items,omitempty"`
	Properties       map[string]*Schema `json:"properties,omitempty"`
	Required         []string           `json:"required,omitempty"`
	// AdditionalProperties is nil (any), false, or the *Schema of the values of a map.
	AdditionalProperties any       `json:"additionalProperties,omitempty"`
	AnyOf                []*Schema `json:"anyOf,omitempty"`
	OneOf                []*Schema `json:"oneOf,omitempty"`
	Not                  *Schema   `json:"not,omitempty"`
	AllOf                []*Schema `json:"allOf,omitempty"`
	If                   *Schema   `json:"if,omitempty"`
	Then                 *Schema   `json:"then,omitempty"`
}

// SchemaTypes are the JSON types that a value may have; none stands for any.
type SchemaTypes []string

// MarshalJSON writes a single type as a string.
func (t SchemaTypes) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}

// Has reports whether a value may have the type.
func (t SchemaTypes) Has(name string) bool { return slices.Contains(t, name) }

// Describe returns the documentation of a field of a struct type, by its name in Go, or of the
// type itself if field is "". It is "" if there is none.
type Describe func(structure reflect.Type, field string) string

// SchemaOf returns the schema of the documents that [Value.Decode] decodes into the value to which
// the pointer into points. The value has the defaults. The tags of fields restrict them: see
// [fields.Check]. Where a type contains itself, the schema permits any value.
func SchemaOf(into any, describe Describe) *Schema {
	b := schemaBuilder{describe: describe}
	return b.schema(reflect.ValueOf(into).Elem())
}

// RequireOne requires exactly one of the fields, or permits at most one if optional. empty has, by
// field, the values with which it counts as absent.
func (s *Schema) RequireOne(empty map[string][]any, optional bool) {
	all := &Schema{}
	names := slices.Sorted(maps.Keys(empty))
	for i, name := range names {
		set := &Schema{Not: &Schema{Enum: empty[name]}}
		all.OneOf = append(all.OneOf, &Schema{Type: SchemaTypes{"object"}, Required: []string{name}, Properties: map[string]*Schema{name: set}})
		for _, other := range names[:i] {
			if optional {
				also := &Schema{Not: &Schema{Enum: empty[other]}}
				s.AllOf = append(s.AllOf, &Schema{Not: &Schema{Type: SchemaTypes{"object"}, Required: []string{other, name}, Properties: map[string]*Schema{name: set, other: also}}})
			}
		}
	}
	if !optional {
		s.AllOf = append(s.AllOf, all)
	}
}

// emptyOf returns the values in files with which a field of the type counts as absent.
func emptyOf(t reflect.Type) []any {
	switch t.Kind() {
	case reflect.String:
		return []any{nil, ""}
	case reflect.Slice:
		return []any{nil, []any{}}
	case reflect.Bool:
		return []any{nil, false}
	case reflect.Int64:
		return []any{nil, 0}
	}
	return []any{nil}
}

// AllowNull allows null, which is the same as an absent field.
func (s *Schema) AllowNull() {
	if s.Type != nil {
		s.Type = append(s.Type, "null")
	}
	if s.Enum != nil {
		s.Enum = append(s.Enum, nil)
	}
	for _, rule := range s.AllOf {
		if rule.OneOf != nil {
			rule.OneOf = append(rule.OneOf, &Schema{Type: SchemaTypes{"null"}})
		}
	}
}

// Require makes the field required, not null and without a default. The field must exist.
func (s *Schema) Require(field string) {
	s.Required = append(s.Required, field)
	property := s.Properties[field]
	property.Type = slices.DeleteFunc(property.Type, func(name string) bool { return name == "null" })
	property.Enum = slices.DeleteFunc(property.Enum, func(value any) bool { return value == nil })
	property.Default = nil
}

// restrict allows only what the tags of the field say: see [fields.Check].
func (s *Schema) restrict(f reflect.StructField) {
	if limits, ok := fields.LimitsOf(f); ok && (s.Type.Has("integer") || s.Type.Has("number")) {
		if limits.Exclusive {
			s.ExclusiveMinimum = &limits.Low
		} else {
			s.Minimum = &limits.Low
		}
		if limits.High != nil {
			s.Maximum = limits.High
		}
	}
	if _, required := f.Tag.Lookup("required"); required {
		switch {
		case s.Type.Has("string"):
			s.requireText()
		case s.Type.Has("array"):
			s.MinItems = 1
		}
	}
	if f.Tag.Get("items") != "" {
		s.Items.requireText()
	}
	if form := fields.Pattern(f.Tag.Get("form")); form != "" && s.Items != nil {
		s.Items.Pattern = form
	} else if form != "" {
		s.Pattern = form
	}
	values, empty := fields.ValuesOf(f)
	for _, value := range values {
		s.Enum = append(s.Enum, value)
	}
	if empty {
		s.Enum = append(s.Enum, "")
	}
}

// requireText requires a text that is not blank.
func (s *Schema) requireText() {
	s.MinLength = 1
	if s.Pattern == "" {
		s.Pattern = `\S`
	}
}

// SetDescription sets the description: the documentation without the name in Go, and the verb after
// it, with which it begins. name is the name in files.
func (s *Schema) SetDescription(documentation, goName, name string) {
	rest, ok := strings.CutPrefix(documentation, goName+" ")
	if !ok { // as Kubernetes begins
		rest, ok = strings.CutPrefix(documentation, name+" ")
	}
	switch {
	case !ok:
	case strings.HasPrefix(rest, "and "), strings.HasPrefix(rest, "or "): // of several fields
		documentation = name + " " + rest
	default:
		documentation = verb.ReplaceAllString(rest, "")
		if first, _, _ := strings.Cut(documentation, " "); !slices.Contains(s.Enum, any(strings.Trim(first, ",."))) {
			documentation = sentence(documentation)
		}
	}
	s.Description = documentation
}

// verb says what a field is.
var verb = regexp.MustCompile(`^(?:is|are|says? that|says?|configures|describes) `)

// sentence returns the text with a capital letter, if it does not begin with a name.
func sentence(text string) string {
	first, _, _ := strings.Cut(text, " ")
	if first != strings.ToLower(first) || strings.ContainsAny(strings.TrimRight(first, ".:"), "./:{") {
		return text
	}
	return strings.ToUpper(first[:min(1, len(first))]) + text[min(1, len(first)):]
}

const durationPattern = `^[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

var durationText = regexp.MustCompile(durationPattern)

type schemaBuilder struct {
	describe Describe
	within   []reflect.Type // structs, from the outermost
}

// schema is the counterpart of decoder.value. rv is addressable.
func (b *schemaBuilder) schema(rv reflect.Value) *Schema {
	switch rv.Type() {
	case valueType:
		return &Schema{}
	case durationType, metaDurationType:
		return &Schema{Type: SchemaTypes{"string"}, Pattern: durationPattern}
	}
	if rv.Kind() == reflect.Pointer {
		if rv.IsNil() {
			return b.schema((&decoder{}).fresh(rv.Type().Elem()))
		}
		return b.schema(rv.Elem())
	}
	switch rv.Addr().Interface().(type) {
	case json.Unmarshaler:
		return &Schema{} // any value
	case encoding.TextUnmarshaler:
		return &Schema{Type: SchemaTypes{"string"}}
	}
	return b.plain(rv)
}

// plain returns the schema of a value whose type has no text or JSON form of its own.
func (b *schemaBuilder) plain(rv reflect.Value) *Schema {
	switch rv.Kind() {
	case reflect.Struct:
		return b.structure(rv)
	case reflect.Map:
		return &Schema{Type: SchemaTypes{"object"}, AdditionalProperties: b.schema((&decoder{}).fresh(rv.Type().Elem()))}
	case reflect.Slice:
		return &Schema{Type: SchemaTypes{"array"}, Items: b.schema((&decoder{}).fresh(rv.Type().Elem()))}
	case reflect.String:
		return &Schema{Type: SchemaTypes{"string"}}
	case reflect.Bool:
		return &Schema{Type: SchemaTypes{"boolean"}}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		s := &Schema{Type: SchemaTypes{"integer"}}
		if bits := rv.Type().Bits(); bits < 64 {
			limit := float64(int64(1) << (bits - 1))
			s.Minimum, s.Maximum = new(-limit), new(limit-1)
		}
		return s
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		s := &Schema{Type: SchemaTypes{"integer"}, Minimum: new(0.0)}
		if bits := rv.Type().Bits(); bits < 64 {
			s.Maximum = new(float64(uint64(1)<<bits - 1))
		}
		return s
	case reflect.Float32, reflect.Float64:
		return &Schema{Type: SchemaTypes{"number"}}
	}
	return &Schema{} // an interface, or what no file can set
}

func (b *schemaBuilder) structure(rv reflect.Value) *Schema {
	t := rv.Type()
	if slices.Contains(b.within, t) {
		return &Schema{}
	}
	b.within = append(b.within, t)
	defer func() { b.within = b.within[:len(b.within)-1] }()
	s := &Schema{Type: SchemaTypes{"object"}, Properties: map[string]*Schema{}, AdditionalProperties: false}
	for _, f := range structFields(t) {
		value, ok := f.of(rv, true)
		if !ok {
			continue // inside an embedded type that cannot be set
		}
		field := t.FieldByIndex(f.index)
		property := b.schema(value)
		property.restrict(field)
		property.Default = defaultOf(value)
		property.AllowNull()
		if b.describe != nil {
			owner, last := t, len(f.index)-1
			if last > 0 {
				owner = t.FieldByIndex(f.index[:last]).Type
			}
			if owner.Kind() == reflect.Pointer {
				owner = owner.Elem()
			}
			goName := owner.Field(f.index[last]).Name
			property.SetDescription(b.describe(owner, goName), goName, f.name)
			property.Description = namesInFiles(owner, property.Description)
			if limits, ok := fields.LimitsOf(field); ok && property.Description != "" && property.Type.Has("string") {
				property.Description += " " + sentence(limits.Rule()) + "." // a schema cannot limit a text, such as a duration, otherwise
			}
		}
		s.Properties[f.name] = property
		if fields.Missing(field, value) {
			s.Require(f.name)
		}
	}
	slices.Sort(s.Required)
	for _, group := range fields.GroupsOf(t) {
		empty := map[string][]any{}
		for name, i := range group.Fields {
			empty[name] = emptyOf(t.Field(i).Type)
		}
		s.RequireOne(empty, group.Optional)
	}
	return s
}

var word = regexp.MustCompile(`\b[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*\b`) // no acronym

// namesInFiles returns the documentation of a field of a struct type, with the names that its
// fields have in files in place of those in Go.
func namesInFiles(t reflect.Type, documentation string) string {
	if first, rest, _ := strings.Cut(documentation, " "); strings.HasPrefix(rest, "and ") { // of several fields, also if it is an acronym
		if f, ok := t.FieldByName(first); ok {
			inFile, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			documentation = inFile + " " + rest
		}
	}
	return word.ReplaceAllStringFunc(documentation, func(name string) string {
		if f, ok := t.FieldByName(name); ok && len(f.Index) == 1 {
			if inFile, _, _ := strings.Cut(f.Tag.Get("json"), ","); inFile != "" && inFile != "-" {
				return inFile
			}
		}
		return name
	})
}

// defaultOf returns the value as in a file; nil if it is a mapping, whose fields have defaults
// of their own, or is not written.
func defaultOf(rv reflect.Value) any {
	n, err := encode(rv)
	if err != nil || n == nil {
		return nil
	}
	var value any
	if err := (Value{node: n}).Decode(&value); err != nil {
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		return nil
	case string:
		if v == "" {
			return nil
		}
	}
	return value
}
