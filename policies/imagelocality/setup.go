package imagelocality

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
)

// Config is the configuration of the policy.
type Config struct {
	// ScoringStrategy says which nodes are better.
	ScoringStrategy ScoringStrategy `json:"scoringStrategy"`
}

// ScoringStrategy says which nodes are better.
type ScoringStrategy struct {
	// Type says what scores are proportional to: the Count (the default) of the pod's images on the
	// node, or their Size.
	Type ScoringStrategyType `json:"type" values:"Count,Size"`
}

// ScoringStrategyType is what scores are proportional to.
type ScoringStrategyType string

const (
	// Count counts images.
	Count ScoringStrategyType = "Count"
	// Size adds up the sizes of images.
	Size ScoringStrategyType = "Size"
)

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("ImageLocality", Defaults, New) }

// Defaults is the configuration of a policy about which nothing is said.
func Defaults() Config { return Config{ScoringStrategy: ScoringStrategy{Type: Count}} }

// New returns the policy, or an aggregate of field.Error values.
func New(config Config) (policy.Policy, error) {
	if errs := config.validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return newImageLocality(config), nil
}

func (c *Config) validate() field.ErrorList { return fields.Check(nil, c) }
