package engine

import (
	"errors"

	"outboard.dev/outboard/snapshot"
)

// Precomputer is implemented by a policy.Policy that computes things which take long and serve
// many requests, such as what it learns from [snapshot.View.History].
type Precomputer interface {
	// Precompute computes, off the path of requests, what those about this View and the
	// next ones will need, and keeps it. It changes how long they take, and never what
	// they are answered. It is called now and then with the latest View, by one goroutine
	// at a time beside requests.
	Precompute(view *snapshot.View)
}

// Precompute lets the policies that are Precomputers compute what requests about this View
// and the next ones will need. It changes no answer. The error is of those that panic: each
// a *PolicyError.
func (e *Engine) Precompute(view *snapshot.View) error {
	var errs []error
	for _, m := range e.members {
		if p, ok := m.Policy.(Precomputer); ok {
			errs = append(errs, guard(m.Name, func() error { p.Precompute(view); return nil }))
		}
	}
	return errors.Join(errs...)
}
