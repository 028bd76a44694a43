package engine

import (
	"errors"

	"outboard.dev/outboard/snapshot"
)

// Precomputer is implemented by a policy.Policy with expensive results that many requests share,
// such as a model learned from [snapshot.View.History].
type Precomputer interface {
	// Precompute computes and keeps what requests with this View, and the views after it, will
	// need. It makes them faster and never changes a decision. One goroutine at a time calls it,
	// from time to time with the latest View, concurrently with requests.
	Precompute(view *snapshot.View)
}

// Precompute calls every Precomputer of the profile. It changes no decision. The error joins a
// *PolicyError for each policy that panics.
func (e *Engine) Precompute(view *snapshot.View) error {
	var errs []error
	for _, m := range e.members {
		if p, ok := m.Policy.(Precomputer); ok {
			errs = append(errs, guard(m.Name, func() error { p.Precompute(view); return nil }))
		}
	}
	return errors.Join(errs...)
}
