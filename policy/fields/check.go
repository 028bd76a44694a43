package fields

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Check requires what the tags of the fields of a configuration say, also of those inside. The
// configuration is a struct or a pointer to one, and at its path, which may be nil.
//
//	Max  int32 `json:"max" limits:"1..110"`     // a number from 1 to 110
//	Size int32 `json:"size" limits:"1.."`       // at least 1
//	Rate float64 `json:"rate" limits:">0..10"`  // more than 0, and at most 10
//	Wait time.Duration `json:"wait" limits:"1s..24h"` // also a metav1.Duration
//	Unit Unit `json:"unit" values:"GiB,MiB"`    // one of these strings
//	Verb Verb `json:"verb" values:",Filter"`    // one of these strings, or ""
//
//	Name string `json:"name" required:"must name the rule"`  // not blank: otherwise the error has this text
//	Label string `json:"label" form:"key"`                   // a valid key of a label or annotation, or ""
//	Rule string `json:"rule" form:"name"`                   // a DNS label, or ""
//	Hosts []string `json:"hosts" items:"must not be empty"`  // no item is blank
//	Label *Key `json:"label" oneOf:"source"`                 // exactly one field of the struct with this tag is set
//	Above *float64 `json:"above" oneOf:"threshold?"`         // at most one
//
// The form and items of a list are those of each item. With required:"-", the caller reports that
// the field is empty. The JSON Schema of configuration files has the same rules, except the length
// of a key's prefix.
func Check(at *field.Path, config any) field.ErrorList { return check(at, reflect.ValueOf(config)) }

func check(at *field.Path, v reflect.Value) (errs field.ErrorList) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return check(at, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			errs = append(errs, check(at.Index(i), v.Index(i))...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() || name == "-" {
				continue
			}
			path := at
			if name != "" || !f.Anonymous {
				path = at.Child(cmp.Or(name, f.Name))
			}
			errs = append(errs, checkField(path, f, v.Field(i))...)
			errs = append(errs, check(path, v.Field(i))...)
		}
		for _, g := range GroupsOf(v.Type()) {
			errs = append(errs, g.check(at, v)...)
		}
	}
	return errs
}

func checkField(at *field.Path, f reflect.StructField, v reflect.Value) (errs field.ErrorList) {
	if why := f.Tag.Get("required"); why != "" && why != "-" && blank(v) {
		return field.ErrorList{field.Required(at, why)}
	}
	if v.Kind() == reflect.Slice {
		for i := range v.Len() {
			if why := f.Tag.Get("items"); why != "" && blank(v.Index(i)) {
				errs = append(errs, field.Required(at.Index(i), why))
			}
			errs = append(errs, checkForm(at.Index(i), f, v.Index(i))...)
		}
		return errs
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	if limits, ok := LimitsOf(f); ok && !limits.allow(v) {
		err := field.Invalid(at, v.Interface(), limits.Rule())
		if s, ok := err.BadValue.(fmt.Stringer); ok {
			err.BadValue = s.String() // "5m0s", not nanoseconds
		}
		return field.ErrorList{err}
	}
	if values, empty := ValuesOf(f); values != nil && !slices.Contains(values, v.String()) && !(empty && v.String() == "") {
		return field.ErrorList{field.NotSupported(at, v.String(), values)}
	}
	return checkForm(at, f, v)
}

func checkForm(at *field.Path, f reflect.StructField, v reflect.Value) field.ErrorList {
	switch f.Tag.Get("form") {
	case "key":
		return Key(at, v.String())
	case "name":
		return Name(at, v.String())
	}
	return nil
}

// blank reports whether a required value is missing: a text of spaces is none.
func blank(v reflect.Value) bool {
	return unset(v) || v.Kind() == reflect.String && strings.TrimSpace(v.String()) == ""
}

// Pattern returns the regular expression of the texts with a form, the value of the tag; "" if
// there is none. It is wider than the form where that limits the length of the prefix of a key.
func Pattern(form string) string {
	const (
		subdomain = `[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*`
		value     = `[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?`
	)
	switch form {
	case "key":
		return `^(?:(?:` + subdomain + `/)?` + value + `)?$`
	case "name":
		return `^(?:[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)?$`
	case "value": // of a label
		return `^(?:` + value + `)?$`
	}
	return ""
}

// unset reports whether a field with the value is the same as an absent one.
func unset(v reflect.Value) bool {
	return v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}

// Missing reports whether a file must set the field, because its tags do not allow the value that
// it has otherwise.
func Missing(f reflect.StructField, v reflect.Value) bool {
	_, required := f.Tag.Lookup("required")
	return required && unset(v) || len(checkField(nil, f, v)) > 0
}

// Group is a set of fields of a struct of which only one may be set.
type Group struct {
	Fields   map[string]int // by name in files: the index in the struct
	Optional bool           // none of them need be set
}

// GroupsOf returns the groups in the tags of a struct type.
func GroupsOf(t reflect.Type) []Group {
	groups := map[string]*Group{}
	for i := range t.NumField() {
		tag := t.Field(i).Tag.Get("oneOf")
		if tag == "" {
			continue
		}
		if groups[tag] == nil {
			groups[tag] = &Group{Fields: map[string]int{}, Optional: strings.HasSuffix(tag, "?")}
		}
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		groups[tag].Fields[name] = i
	}
	var sorted []Group
	for _, tag := range slices.Sorted(maps.Keys(groups)) {
		sorted = append(sorted, *groups[tag])
	}
	return sorted
}

func (g *Group) check(at *field.Path, v reflect.Value) field.ErrorList {
	names := slices.Sorted(maps.Keys(g.Fields))
	last := len(names) - 1
	all := strings.Join(names[:last], ", ") + " and " + names[last]
	given := slices.DeleteFunc(names, func(name string) bool { return unset(v.Field(g.Fields[name])) })
	switch {
	case len(given) > 1:
		return field.ErrorList{field.Forbidden(at.Child(given[1]), "cannot be set together with "+given[0]+": set only one of "+all)}
	case len(given) == 0 && !g.Optional:
		return field.ErrorList{field.Required(at, "must set one of "+all)}
	}
	return nil
}

// Limits are the limits of a number, or of a duration in nanoseconds.
type Limits struct {
	Low       float64
	Exclusive bool     // Low itself is not allowed
	High      *float64 // nil: none
	text      [2]string
}

// LimitsOf returns the limits in the tag of the field; false if there are none.
func LimitsOf(f reflect.StructField) (Limits, bool) {
	tag, ok := f.Tag.Lookup("limits")
	if !ok {
		return Limits{}, false
	}
	var l Limits
	tag, l.Exclusive = strings.CutPrefix(tag, ">")
	var found bool
	l.text[0], l.text[1], found = strings.Cut(tag, "..")
	low, err := parseLimit(l.text[0])
	l.Low = low
	if l.text[1] != "" && err == nil {
		var high float64
		high, err = parseLimit(l.text[1])
		l.High = &high
	}
	if err != nil || !found {
		panic(fmt.Sprintf("field %s has the tag limits:%q, want limits:\"LOW..HIGH\"", f.Name, tag))
	}
	return l, true
}

// parseLimit reads a number or a duration.
func parseLimit(text string) (float64, error) {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n, nil
	}
	d, err := time.ParseDuration(text)
	return float64(d), err
}

func (l *Limits) allow(v reflect.Value) bool {
	var n float64
	if d, ok := v.Interface().(metav1.Duration); ok {
		v = reflect.ValueOf(d.Duration)
	}
	switch {
	case v.CanInt():
		n = float64(v.Int())
	case v.CanUint():
		n = float64(v.Uint())
	default:
		n = v.Float()
	}
	return (n > l.Low || n == l.Low && !l.Exclusive) && (l.High == nil || n <= *l.High) // NaN is not
}

// Rule says what a value must be, such as "must be between 1s and 24h".
func (l *Limits) Rule() string {
	switch {
	case l.Exclusive && l.High != nil:
		return fmt.Sprintf("must be more than %s, and at most %s", l.text[0], l.text[1])
	case l.Exclusive:
		return "must be more than " + l.text[0]
	case l.High == nil:
		return "must be at least " + l.text[0]
	}
	return fmt.Sprintf("must be between %s and %s", l.text[0], l.text[1])
}

// ValuesOf returns the values in the tag of a field with a string, and whether it may be empty; nil
// if any string is allowed.
func ValuesOf(f reflect.StructField) (values []string, empty bool) {
	tag, ok := f.Tag.Lookup("values")
	if !ok {
		return nil, false
	}
	tag, empty = strings.CutPrefix(tag, ",")
	return strings.Split(tag, ","), empty
}
