package imagelocality

import "outboard.dev/outboard/policy"

// Type is the policy as a configuration file knows it. It has no configuration.
func Type() policy.Type {
	return policy.Type{Name: "ImageLocality", New: func(func(any) error) (policy.Policy, error) { return New(), nil }}
}
