package fields

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Check requires what the tags of the fields of a configuration say, also of those inside. The configuration is a struct or a pointer
// to one, and at its path, which may be nil.
//
//	Max  int32 `json:"max" limits:"1..110"`     // a number from 1 to 110
//	Size int32 `json:"size" limits:"1.."`       // at least 1
//	Rate float64 `json:"rate" limits:">0..10"`  // more than 0, and at most 10
//	Unit Unit `json:"unit" values:"GiB,MiB"`    // one of these strings
//	Verb Verb `json:"verb" values:",Filter"`    // one of these strings, or ""
//
// The JSON Schema of configuration files has the same limits and values.
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
	}
	return errs
}

func checkField(at *field.Path, f reflect.StructField, v reflect.Value) field.ErrorList {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	if limits, ok := LimitsOf(f); ok && !limits.allow(v) {
		return field.ErrorList{field.Invalid(at, v.Interface(), limits.rule())}
	}
	if values, empty := ValuesOf(f); values != nil && !slices.Contains(values, v.String()) && !(empty && v.String() == "") {
		return field.ErrorList{field.NotSupported(at, v.String(), values)}
	}
	return nil
}

// Limits are the limits of a number.
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
	low, err := strconv.ParseFloat(l.text[0], 64)
	l.Low = low
	if l.text[1] != "" && err == nil {
		var high float64
		high, err = strconv.ParseFloat(l.text[1], 64)
		l.High = &high
	}
	if err != nil || !found {
		panic(fmt.Sprintf("field %s has the tag limits:%q, want limits:\"LOW..HIGH\"", f.Name, tag))
	}
	return l, true
}

func (l *Limits) allow(v reflect.Value) bool {
	var n float64
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

func (l *Limits) rule() string {
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

// ValuesOf returns the values in the tag of a field with a string, and whether it may be empty; nil if any string is allowed.
func ValuesOf(f reflect.StructField) (values []string, empty bool) {
	tag, ok := f.Tag.Lookup("values")
	if !ok {
		return nil, false
	}
	tag, empty = strings.CutPrefix(tag, ",")
	return strings.Split(tag, ","), empty
}
