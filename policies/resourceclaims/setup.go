package resourceclaims

import (
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
	// Type says which nodes are better: BinPack (the default), whose devices are used more; Spread,
	// less; LeastWaste, where the pods that usually arrive can still use most.
	Type policy.ScoringStrategyType `json:"type" values:"BinPack,Spread,LeastWaste"`
	// Driver is the driver of the devices for LeastWaste and the page.
	Driver string `json:"driver" required:"must not be empty"`
	// ModelAttribute is the attribute of these devices with their model, for LeastWaste.
	ModelAttribute string `json:"modelAttribute" required:"must not be empty"`
}

// LeastWaste prefers nodes where the least is wasted of what the pods that usually come could use.
const LeastWaste policy.ScoringStrategyType = "LeastWaste"

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("ResourceClaims", Defaults, New) }

// Defaults is the configuration of a policy about which nothing is said.
func Defaults() Config {
	return Config{ScoringStrategy: ScoringStrategy{Type: policy.BinPack, Driver: "gpu.nvidia.com", ModelAttribute: "productName"}}
}

// New returns the policy, or an aggregate of field.Error values.
func New(config Config) (policy.Policy, error) {
	if errs := fields.Check(nil, &config); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return newResourceClaims(config), nil
}
