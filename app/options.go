package app

import (
	"outboard.dev/outboard/internal/config"
	policies "outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/signal"
	signals "outboard.dev/outboard/signal/standard"
)

// Option changes the policies or signals of the command.
type Option func(*typeSet)

type typeSet = config.Types

// WithPolicies replaces the types of policies that configurations can name. Default
// standard.Types(), of package policies/standard.
func WithPolicies(types ...policy.Type) Option {
	return func(t *typeSet) { t.Policies = types }
}

// WithSignals replaces the types of sources of signals that configurations can name.
// Default standard.Types(), of package signal/standard.
func WithSignals(types ...signal.Type) Option {
	return func(t *typeSet) { t.Signals = types }
}

func typesOf(options []Option) config.Types {
	t := typeSet{Policies: policies.Types(), Signals: signals.Types()}
	for _, set := range options {
		set(&t)
	}
	return t
}
