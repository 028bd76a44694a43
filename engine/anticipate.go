package engine

import (
	"errors"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Anticipate lets the policies compute what requests about this View and the next ones
// will need. It changes no answer. The error is of those that panic: each a
// *PolicyError.
func (e *Engine) Anticipate(view *snapshot.View) error {
	var errs []error
	for _, m := range e.members {
		if a, ok := m.Policy.(policy.Anticipator); ok {
			errs = append(errs, guard(m.Name, func() error { a.Anticipate(view); return nil }))
		}
	}
	return errors.Join(errs...)
}
