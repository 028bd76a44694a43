package fields

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Match selects nodes, or other objects, by one of their labels or annotations.
type Match struct {
	// Key is the key that a node must have. Required.
	Key string `json:"key" required:"must not be empty" form:"key"`
	// Values are the values that match. None (the default): any value does.
	Values []string `json:"values"`
}

// In reports whether the labels or annotations match.
func (m *Match) In(all map[string]string) bool {
	value, ok := all[m.Key]
	return ok && (len(m.Values) == 0 || slices.Contains(m.Values, value))
}

// CheckLabel requires, in addition to Check, values that a label can have. m may be nil.
func (m *Match) CheckLabel(at *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	var errs field.ErrorList
	for i, value := range m.Values {
		errs = append(errs, Valid(at.Child("values").Index(i), value, content.IsLabelValue)...)
	}
	return errs
}
