package engine

import (
	"errors"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Precompute calls every [policy.Precomputer] of the profile. It changes no decision. The error joins a
// *PolicyError for each policy that panics.
func (e *Engine) Precompute(view *snapshot.View) error {
	var errs []error
	for _, m := range e.members {
		if p, ok := m.Policy.(policy.Precomputer); ok {
			errs = append(errs, guard(m.Name, func() error { p.Precompute(view); return nil }))
		}
	}
	return errors.Join(errs...)
}
