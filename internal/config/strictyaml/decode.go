package strictyaml

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/policy/fields"
)

// Decode sets the value to which into, a non-nil pointer, points from v, and returns all errors as
// [Errors]. Fields with an error keep their value. Decoding the zero Value changes nothing.
func (v Value) Decode(into any) error {
	target := reflect.ValueOf(into)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return fmt.Errorf("decode into %T: not a pointer to a value", into)
	}
	if v.node == nil {
		return nil
	}
	d := decoder{fields: map[reflect.Type][]structField{}}
	d.value(v, target.Elem())
	if v.path == nil && v.doc != nil {
		return Join(v.doc.errs, d.errs)
	}
	return Join(d.errs)
}

type decoder struct {
	fields map[reflect.Type][]structField
	errs   Errors
}

func (d *decoder) fail(at Value, kind, value, rule string) {
	if len(d.errs) <= maxErrors {
		d.errs = append(d.errs, &Error{File: at.file(), Line: at.line, Path: at.Path(), Kind: kind, Value: value, Rule: rule})
	}
}

// must reports that the value at at violates the rule.
func (d *decoder) must(at Value, be string) {
	d.fail(at, "Invalid value", describe(resolve(at.node)), "must be "+be)
}

func (v Value) item(i int) Value {
	n := resolve(v.node).Content[i]
	return Value{doc: v.doc, node: n, path: v.path.Index(i), line: n.Line}
}

var (
	valueType        = reflect.TypeFor[Value]()
	durationType     = reflect.TypeFor[time.Duration]()
	metaDurationType = reflect.TypeFor[metav1.Duration]()
)

// value decodes at into rv, which is addressable.
func (d *decoder) value(at Value, rv reflect.Value) {
	n := resolve(at.node)
	if n.Style&yaml.TaggedStyle != 0 || isNull(n) {
		return // a tag is an error found by Parse; null is nothing
	}
	switch rv.Type() {
	case valueType:
		rv.Set(reflect.ValueOf(at))
		return
	case durationType, metaDurationType:
		d.duration(at, n, rv)
		return
	}
	if rv.Kind() == reflect.Pointer {
		if rv.IsNil() {
			fresh := d.fresh(rv.Type().Elem())
			d.value(at, fresh)
			rv.Set(fresh.Addr())
			return
		}
		d.value(at, rv.Elem())
		return
	}
	switch into := rv.Addr().Interface().(type) {
	case json.Unmarshaler:
		d.unmarshalJSON(at, into)
		return
	case encoding.TextUnmarshaler:
		if n.Kind != yaml.ScalarNode || classify(n) != text {
			d.must(at, "a string")
		} else if err := into.UnmarshalText([]byte(n.Value)); err != nil {
			d.fail(at, "Invalid value", describe(n), oneLine(err.Error()))
		}
		return
	}
	switch rv.Kind() {
	case reflect.Struct:
		d.structure(at, n, rv)
	case reflect.Map:
		d.mapping(at, n, rv)
	case reflect.Slice:
		d.list(at, n, rv)
	case reflect.Interface:
		d.free(at, rv)
	default:
		d.scalar(at, n, rv)
	}
}

// fresh returns a new addressable value of type t with its defaults.
func (d *decoder) fresh(t reflect.Type) reflect.Value {
	p := reflect.New(t)
	if v, ok := p.Interface().(interface{ SetDefaults() }); ok {
		v.SetDefaults()
	}
	return p.Elem()
}

func (d *decoder) structure(at Value, n *yaml.Node, rv reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.must(at, "a mapping"+d.form(n, rv))
		return
	}
	fields, ok := d.fields[rv.Type()]
	if !ok {
		fields = structFields(rv.Type())
		d.fields[rv.Type()] = fields
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, ok := keyText(n.Content[i])
		if !ok {
			continue // an error found by Parse
		}
		f := lookUp(fields, name)
		if f == nil {
			inner := Value{doc: at.doc, path: childPath(at.path, name), line: n.Content[i].Line}
			d.fail(inner, "Unknown field", "", unknown(name, fields))
			continue
		}
		inner := Value{doc: at.doc, node: n.Content[i+1], path: at.path.Child(name), line: n.Content[i].Line}
		if target, ok := f.of(rv, true); ok {
			d.value(inner, target)
		} else {
			d.unsupported(inner, rv.Type())
		}
	}
}

// bare matches texts that need no quotes in a flow mapping.
var bare = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9./_-]{0,99}$`)

// form returns, after a comma, the mapping that is probably meant by a text instead of the struct:
// with the text in the first field, such as {name: cad} for cad. It is "" if the text is none that
// fits there.
func (d *decoder) form(n *yaml.Node, rv reflect.Value) string {
	known := structFields(rv.Type())
	if n.Kind != yaml.ScalarNode || classify(n) != text || !bare.MatchString(n.Value) || len(known) == 0 {
		return ""
	}
	if first, ok := known[0].of(d.fresh(rv.Type()), true); !ok || first.Kind() != reflect.String {
		return ""
	}
	return fmt.Sprintf(", such as {%s: %s}", known[0].name, n.Value)
}

func unknown(name string, known []structField) string {
	names := namesOf(known)
	if near := fields.Nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(names) == 0 {
		return "no fields can be set here"
	}
	return "known here: " + strings.Join(names, ", ")
}

func (d *decoder) mapping(at Value, n *yaml.Node, rv reflect.Value) {
	t := rv.Type()
	if n.Kind != yaml.MappingNode {
		d.must(at, "a mapping")
		return
	}
	if t.Key().Kind() != reflect.String {
		d.unsupported(at, t)
		return
	}
	m := reflect.MakeMapWithSize(t, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, ok := keyText(n.Content[i])
		if !ok {
			continue // an error found by Parse
		}
		elem := d.fresh(t.Elem())
		d.element(Value{doc: at.doc, node: n.Content[i+1], path: at.path.Key(name), line: n.Content[i].Line}, elem)
		m.SetMapIndex(reflect.ValueOf(name).Convert(t.Key()), elem)
	}
	rv.Set(m)
}

func (d *decoder) list(at Value, n *yaml.Node, rv reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.must(at, "a list")
		return
	}
	if rv.Type().Elem().Kind() == reflect.Uint8 { // bytes would be base64 to encoding/json
		d.unsupported(at, rv.Type())
		return
	}
	s := reflect.MakeSlice(rv.Type(), 0, len(n.Content))
	for i := range n.Content {
		elem := d.fresh(s.Type().Elem())
		d.element(at.item(i), elem)
		s = reflect.Append(s, elem)
	}
	rv.Set(s)
}

// element decodes a value in a list or map. It must not be null.
func (d *decoder) element(at Value, rv reflect.Value) {
	if isNull(resolve(at.node)) && rv.Kind() != reflect.Interface {
		d.fail(at, "Required value", "", "must not be empty")
		return
	}
	d.value(at, rv)
}

func (d *decoder) scalar(at Value, n *yaml.Node, rv reflect.Value) {
	kind := ambiguous
	if n.Kind == yaml.ScalarNode {
		kind = classify(n)
	}
	switch rv.Kind() {
	case reflect.String:
		switch {
		case kind == text:
			rv.SetString(n.Value)
		case n.Kind == yaml.ScalarNode:
			d.must(at, "a string: put it in quotes")
		default:
			d.must(at, "a string")
		}
	case reflect.Bool:
		if kind != boolean {
			d.must(at, "true or false")
			return
		}
		rv.SetBool(strings.EqualFold(n.Value, "true"))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		bits := rv.Type().Bits()
		i, err := strconv.ParseInt(n.Value, 10, bits)
		switch {
		case kind != integer:
			d.must(at, "a whole number")
		case err != nil:
			d.must(at, fmt.Sprintf("between %d and %d", int64(math.MinInt64)>>(64-bits), int64(math.MaxInt64)>>(64-bits)))
		default:
			rv.SetInt(i)
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		bits := rv.Type().Bits()
		u, err := strconv.ParseUint(n.Value, 10, bits)
		switch {
		case kind != integer:
			d.must(at, "a whole number")
		case err != nil:
			d.must(at, fmt.Sprintf("between 0 and %d", uint64(math.MaxUint64)>>(64-bits)))
		default:
			rv.SetUint(u)
		}
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(n.Value, rv.Type().Bits())
		switch {
		case kind != integer && kind != number:
			d.must(at, "a number such as 0.5")
		case err != nil:
			d.must(at, "a smaller number")
		default:
			rv.SetFloat(f)
		}
	default:
		d.unsupported(at, rv.Type())
	}
}

// free decodes into an interface, with the types of encoding/json.
func (d *decoder) free(at Value, rv reflect.Value) {
	if rv.NumMethod() != 0 {
		d.unsupported(at, rv.Type())
		return
	}
	if data, ok := d.json(at, nil); ok {
		if err := json.Unmarshal(data, rv.Addr().Interface()); err != nil {
			d.must(at, "representable in JSON")
		}
	}
}

func (d *decoder) unsupported(at Value, t reflect.Type) {
	d.fail(at, "", "", fmt.Sprintf("cannot be set from a file: its Go type is %s", t))
}

func (d *decoder) duration(at Value, n *yaml.Node, rv reflect.Value) {
	const rule = "a duration such as 500ms, 30s or 1h30m"
	if n.Kind != yaml.ScalarNode || classify(n) != text {
		d.must(at, rule)
		return
	}
	duration, err := time.ParseDuration(n.Value)
	if err != nil && durationText.MatchString(n.Value) {
		d.must(at, "at most 292 years")
		return
	}
	if err != nil {
		d.must(at, rule)
		return
	}
	if rv.Type() == metaDurationType {
		rv = rv.Field(0)
	}
	rv.SetInt(int64(duration))
}

func (d *decoder) unmarshalJSON(at Value, into json.Unmarshaler) {
	data, ok := d.json(at, nil)
	if !ok {
		return
	}
	var err error
	if _, ok := into.(*resource.Quantity); ok && resolve(at.node).Kind == yaml.ScalarNode && string(data) != "null" {
		_, err = fields.ParseQuantity(strings.TrimSpace(strings.Trim(string(data), `"`))) // bounds the time of UnmarshalJSON
	}
	if err == nil {
		err = into.UnmarshalJSON(data)
	}
	if err != nil {
		d.fail(at, "Invalid value", describe(resolve(at.node)), strings.TrimPrefix(oneLine(err.Error()), "json: "))
	}
}

// json appends the value as JSON to data. If it cannot, it reports the error and returns false.
func (d *decoder) json(at Value, data []byte) ([]byte, bool) {
	n := resolve(at.node)
	allOK := true
	switch n.Kind {
	case yaml.MappingNode:
		data = append(data, '{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			name, _ := keyText(n.Content[i])
			if i > 0 {
				data = append(data, ',')
			}
			data = append(appendJSONString(data, name), ':')
			var ok bool
			data, ok = d.json(Value{doc: at.doc, node: n.Content[i+1], path: childPath(at.path, name), line: n.Content[i].Line}, data)
			allOK = allOK && ok
		}
		return append(data, '}'), allOK
	case yaml.SequenceNode:
		data = append(data, '[')
		for i := range n.Content {
			if i > 0 {
				data = append(data, ',')
			}
			var ok bool
			data, ok = d.json(at.item(i), data)
			allOK = allOK && ok
		}
		return append(data, ']'), allOK
	}
	if n.Style&yaml.TaggedStyle != 0 {
		return append(data, "null"...), true // an error found by Parse
	}
	switch classify(n) {
	case text:
		return appendJSONString(data, n.Value), true
	case null:
		return append(data, "null"...), true
	case boolean:
		return append(data, strings.ToLower(n.Value)...), true
	case integer, number:
		return append(data, n.Value...), true
	}
	d.must(at, "unambiguous: put it in quotes if it is a string, else write it as in JSON")
	return append(data, "null"...), false
}

func appendJSONString(data []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // a string always has a JSON form
	return append(data, quoted...)
}

// structField is a field of a struct, possibly inside embedded ones.
type structField struct {
	name  string
	index []int
}

// structFields lists the fields of struct type t as encoding/json names them.
func structFields(t reflect.Type) []structField {
	var all []structField
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case f.Tag.Get("json") == "-":
		case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			for _, g := range structFields(inner) {
				all = append(all, structField{g.name, append([]int{i}, g.index...)})
			}
		case f.IsExported():
			if name == "" {
				name = f.Name
			}
			all = append(all, structField{name, []int{i}})
		}
	}
	// A field hides those of the same name in embedded structs.
	var fields []structField
	for _, f := range all {
		hides := func(g structField) bool { return g.name == f.name && len(g.index) < len(f.index) }
		if lookUp(fields, f.name) == nil && !slices.ContainsFunc(all, hides) {
			fields = append(fields, f)
		}
	}
	return fields
}

// Fields returns the names of the fields that a document can set in the struct to which the pointer
// points; none if it points to another type.
func Fields(pointer any) []string {
	t := reflect.TypeOf(pointer)
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil
	}
	return namesOf(structFields(t.Elem()))
}

func namesOf(fields []structField) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}

func lookUp(fields []structField, name string) *structField {
	for i := range fields {
		if fields[i].name == name {
			return &fields[i]
		}
	}
	return nil
}

// of returns the field of rv. If alloc is set, of allocates embedded structs behind nil pointers;
// otherwise ok is false for their fields.
func (f *structField) of(rv reflect.Value, alloc bool) (field reflect.Value, ok bool) {
	for _, i := range f.index {
		if rv.Kind() == reflect.Pointer {
			if rv.IsNil() {
				if !alloc || !rv.CanSet() {
					return reflect.Value{}, false
				}
				rv.Set(reflect.New(rv.Type().Elem()))
			}
			rv = rv.Elem()
		}
		rv = rv.Field(i)
	}
	return rv, true
}
