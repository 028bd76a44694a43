package fields

import (
	"iter"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// From is where a node or a pod declares something: exactly one of an annotation and a label.
type From struct {
	// Annotation is the key of an annotation.
	Annotation string `json:"annotation" oneOf:"from" form:"key"`
	// Label is the key of a label.
	Label string `json:"label" oneOf:"from" form:"key"`
}

// Of returns what the object declares, and whether it declares something. With nil, none does.
func (f *From) Of(object metav1.Object) (text string, declared bool) {
	switch {
	case f == nil:
		return "", false
	case f.Annotation != "":
		text, declared = object.GetAnnotations()[f.Annotation]
	default:
		text, declared = object.GetLabels()[f.Label]
	}
	return text, declared
}

// Items returns the items of a list that an object declares, as List does. Commas separate them in
// an annotation, and underscores in a label, in which Kubernetes allows no commas.
func (f *From) Items(text string) iter.Seq[string] {
	if f.Annotation != "" {
		return List(text, ",")
	}
	return List(text, "_")
}

// List yields the items of a list in a label or an annotation, without the spaces around them.
func List(text, separator string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for item := range strings.SplitSeq(text, separator) {
			if !yield(strings.TrimSpace(item)) {
				return
			}
		}
	}
}

// String says where it is declared, for explanations.
func (f *From) String() string {
	if f.Annotation != "" {
		return "annotation " + f.Annotation
	}
	return "label " + f.Label
}
