// Package fields validates values of configurations. Each function returns nothing, or the errors
// of a value, in the words of Kubernetes and with the given path.
package fields

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Valid applies a rule of Kubernetes, such as [content.IsLabelValue], to the value.
func Valid(at *field.Path, value string, rule func(string) []string) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range rule(value) {
		errs = append(errs, field.Invalid(at, value, problem))
	}
	return errs
}

// Key requires a valid key of a label or annotation, or "". Names of resources and of conditions
// have the same form.
func Key(at *field.Path, key string) field.ErrorList {
	if key == "" {
		return nil
	}
	return Valid(at, key, content.IsLabelKey)
}

// Name requires a DNS label, as names in configurations are, or "".
func Name(at *field.Path, name string) field.ErrorList {
	if name == "" {
		return nil
	}
	return Valid(at, name, content.IsDNS1123Label)
}

// ExtendedResource requires the name of an extended resource, by the rules of kube-scheduler and of
// resource quotas.
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

// Unique maps the values of which none may occur twice to their paths. The zero value is not
// usable; an empty map is.
type Unique map[string]*field.Path

// Add requires that the value does not occur yet, and adds it. It ignores "", for which another
// rule reports that it is missing.
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
