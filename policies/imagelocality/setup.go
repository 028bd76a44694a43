package imagelocality

import "outboard.dev/outboard/policy"

// Config is the configuration of the policy, which has no fields.
type Config struct{}

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("ImageLocality", Defaults, New) }

// Defaults is the configuration of a policy about which nothing is said.
func Defaults() Config { return Config{} }

// New returns the policy.
func New(Config) (policy.Policy, error) { return newImageLocality(), nil }
