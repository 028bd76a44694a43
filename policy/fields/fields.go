// Package fields checks what is written in configurations. Each function returns nothing, or
// what is wrong with a value, in the words of Kubernetes and with the path it is given.
package fields

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// OneOf says that the value must be one of those that are known.
func OneOf[T ~string](at *field.Path, value T, known ...T) field.ErrorList {
	if slices.Contains(known, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, known)}
}

// Between says that the value must be from low to high, which both are allowed. NaN is not.
func Between[T ~int | ~int32 | ~int64 | ~float64](at *field.Path, value, low, high T) field.ErrorList {
	if value >= low && value <= high {
		return nil
	}
	err := field.Invalid(at, value, fmt.Sprintf("must be between %v and %v", low, high))
	if s, ok := any(value).(fmt.Stringer); ok {
		err.BadValue = s.String() // "5m0s", not nanoseconds
	}
	return field.ErrorList{err}
}

// Valid says what a rule of Kubernetes, such as [content.IsLabelValue], has against the value.
func Valid(at *field.Path, value string, rule func(string) []string) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range rule(value) {
		errs = append(errs, field.Invalid(at, value, problem))
	}
	return errs
}

// Key says that there must be a key of labels and annotations. Names of resources and of
// conditions have the same form.
func Key(at *field.Path, key string) field.ErrorList {
	if key == "" {
		return field.ErrorList{field.Required(at, "must not be empty")}
	}
	return Valid(at, key, content.IsLabelKey)
}

// OptionalKey is Key, but there may be none.
func OptionalKey(at *field.Path, key string) field.ErrorList {
	if key == "" {
		return nil
	}
	return Key(at, key)
}

// ExtendedResource says that there must be the name of an extended resource: of one that
// kube-scheduler takes for one, and that can be in a quota.
func ExtendedResource(at *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "must name an extended resource such as example.com/gpu-memory")}
	}
	const quotaPrefix = "requests."
	errs := Valid(at, name, content.IsLabelKey)
	if len(errs) == 0 && (!strings.Contains(name, "/") || strings.Contains(name, "kubernetes.io/") ||
		strings.HasPrefix(name, quotaPrefix) || len(content.IsLabelKey(quotaPrefix+name)) > 0) {
		errs = append(errs, field.Invalid(at, name, "must be an extended resource such as example.com/gpu-memory, not one of Kubernetes' own"))
	}
	return errs
}

// ExactlyOne says that one of the fields below at must be given, and no other. It is told
// which there are, at least two, and whether they are given.
func ExactlyOne(at *field.Path, fields map[string]bool) field.ErrorList {
	names := slices.Sorted(maps.Keys(fields))
	last := len(names) - 1
	all := strings.Join(names[:last], ", ") + " and " + names[last]
	given := slices.DeleteFunc(names, func(name string) bool { return !fields[name] })
	switch len(given) {
	case 0:
		return field.ErrorList{field.Required(at, "must have one of "+all)}
	case 1:
		return nil
	}
	return field.ErrorList{field.Forbidden(at.Child(given[1]), "only one of "+all+" can be given, and "+given[0]+" is")}
}

// Unique are values of which none may be there twice, and where they are. The zero value is
// not usable; an empty map is.
type Unique map[string]*field.Path

// Add says that the value must not be there yet, and then is. "" is left out: it is for
// others to say that it is missing.
func (u Unique) Add(at *field.Path, value string) field.ErrorList {
	if value == "" {
		return nil
	}
	first := u[value]
	if first == nil {
		u[value] = at
		return nil
	}
	err := field.Duplicate(at, value)
	err.Detail = "also in " + first.String()
	return field.ErrorList{err}
}
