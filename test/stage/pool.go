package stage

import (
	"context"
	"errors"
	"sync"
	"time"

	"outboard.dev/outboard/test/controlplane"
)

// restoreTimeout bounds the time to restore a control plane, which takes less than a second on an idle machine.
const restoreTimeout = 2 * time.Minute

// Pool has control planes that one stage after the other uses, each as if it were new. The zero value is an
// empty pool. Its methods may be called concurrently.
type Pool struct {
	// Bare is whether the control planes are empty: without the Ledger CRD and Outboard's permissions, so that [Stage.StartOutboard] fails.
	Bare bool

	mu   sync.Mutex
	idle []*ground
}

// take returns the control plane that was used last, or starts one.
func (p *Pool) take(ctx context.Context, root string) (*ground, error) {
	p.mu.Lock()
	if last := len(p.idle) - 1; last >= 0 {
		g := p.idle[last]
		p.idle = p.idle[:last]
		p.mu.Unlock()
		return g, nil
	}
	p.mu.Unlock()
	create := newGround
	if p.Bare {
		create = startGround
	}
	g, err := create(ctx, root, controlplane.Options{})
	if err != nil {
		return nil, err
	}
	if g.checkpoint, err = g.Checkpoint(ctx); err != nil {
		return nil, errors.Join(err, g.ControlPlane.Stop())
	}
	return g, nil
}

// giveBack restores the control plane, and stops it if that is impossible.
func (p *Pool) giveBack(g *ground) error {
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	if err := g.Restore(ctx, g.checkpoint); err != nil {
		return errors.Join(err, g.ControlPlane.Stop())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, g)
	return nil
}

// Stop stops the control planes that are not in use.
func (p *Pool) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, g := range p.idle {
		errs = append(errs, g.ControlPlane.Stop())
	}
	p.idle = nil
	return errors.Join(errs...)
}

// Stop ends everything on the stage, and gives the control planes back to the pool. It can be called more than
// once.
func (s *Stage) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	var errs []error
	for _, g := range append(s.others, s.ground) {
		if s.pool == nil {
			errs = append(errs, g.ControlPlane.Stop())
		} else {
			errs = append(errs, s.pool.giveBack(g))
		}
	}
	return errors.Join(errs...)
}
