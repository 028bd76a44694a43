package nodes

import (
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/signal"
)

// Config selects the numbers of Node objects. Exactly one field is set.
type Config struct {
	// Label is the key of a label with a number.
	Label string `json:"label" oneOf:"source" form:"key"`
	// Annotation is the key of an annotation with a number.
	Annotation string `json:"annotation" oneOf:"source" form:"key"`
	// Condition is the type of a condition: 1 if its status is True, 0 if it is False, and no
	// number otherwise.
	Condition string `json:"condition" oneOf:"source" form:"key"`
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
	open := func(cluster signal.Cluster) (signal.Source, error) { return New(c, cluster.View), nil }
	return signal.Spec{About: policy.AboutNodes, Open: open}, fields.Check(nil, &c).ToAggregate()
}
