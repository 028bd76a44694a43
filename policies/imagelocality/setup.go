package imagelocality

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
)

// Measure is what scores are proportional to.
type Measure string

const (
	// Count counts images.
	Count Measure = "count"
	// Size adds up the sizes of images.
	Size Measure = "size"
)

// Config is the configuration of the policy.
type Config struct {
	// ScoreBy is Count (the default) or Size.
	ScoreBy Measure `json:"scoreBy"`
}

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("ImageLocality", Defaults, New) }

// Defaults is the configuration of a policy about which nothing is said.
func Defaults() Config { return Config{ScoreBy: Count} }

// New returns the policy, or an aggregate of field.Error values.
func New(config Config) (policy.Policy, error) {
	if errs := fields.OneOf(field.NewPath("scoreBy"), config.ScoreBy, Count, Size); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return newImageLocality(config), nil
}
