package nodes

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/signal"
)

// Config selects the numbers of Node objects. Exactly one field is set.
type Config struct {
	// Label is the key of a label with a number.
	Label string `json:"label" oneOf:"source"`
	// Annotation is the key of an annotation with a number.
	Annotation string `json:"annotation" oneOf:"source"`
	// Condition is the type of a condition: 1 if its status is True, 0 if it is False, and no
	// number otherwise.
	Condition string `json:"condition" oneOf:"source"`
}

// Type is the type of source in configuration files.
func Type() signal.Type {
	t := signal.TypeOf("nodes", Defaults, spec)
	t.NeedsCluster = true
	return t
}

// Defaults is the default configuration, without the required fields.
func Defaults() Config { return Config{} }

func spec(c Config) (signal.Spec, error) {
	errs := fields.Check(nil, &c)
	errs = append(errs, fields.Key(field.NewPath("label"), c.Label)...)
	errs = append(errs, fields.Key(field.NewPath("annotation"), c.Annotation)...)
	errs = append(errs, fields.Key(field.NewPath("condition"), c.Condition)...)
	open := func(cluster signal.Cluster) (signal.Source, error) { return New(c, cluster.View), nil }
	return signal.Spec{About: policy.AboutNodes, Open: open}, errs.ToAggregate()
}
