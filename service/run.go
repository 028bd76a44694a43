package service

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// Run does what a Service does in the background, until ctx ends: it follows the cluster and the signals, keeps ledgers, requeues
// pods, and lets policies compute ahead. It may be called once.
func (s *Service) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	run := func(f func(context.Context)) {
		group.Go(func() error {
			f(ctx)
			return nil
		})
	}
	run(s.followSignals)
	if s.Cluster != nil {
		group.Go(func() error { return s.Cluster.Run(ctx) })
		run(s.keepLedgers)
	}
	if s.Requeuer != nil {
		run(s.Requeuer.Run)
	}
	run(s.precompute)
	run(s.retryReloads)
	return group.Wait()
}

// followSignals reads signals until ctx ends, from when the cluster has been read: before, the API server's time is not known, by which
// readings are dated, and a later reading could bear an earlier time.
func (s *Service) followSignals(ctx context.Context) {
	if s.Cluster != nil {
		_ = s.Cluster.WaitForSync(ctx) // otherwise ctx has ended
	}
	s.signals.Run(ctx)
}

// keepLedgers keeps ledgers from when a policy claims something until ctx ends.
func (s *Service) keepLedgers(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.claimed:
	}
	// Before, nothing is known about who needs a claim.
	if s.Cluster.WaitForSync(ctx) == nil {
		s.Keeper.Run(ctx)
	}
}

// precomputePause is the time between a new View, or other profiles, and Engine.Precompute: the result is needed about a
// hundred pods later.
const precomputePause = 200 * time.Millisecond

// precompute lets policies compute what the next requests will need, until ctx ends.
func (s *Service) precompute(ctx context.Context) {
	if s.Cluster == nil {
		return
	}
	for {
		view := s.Cluster.View()
		if s.Cluster.Synced() == nil {
			for path, e := range s.current.Load().Engines {
				if err := e.Precompute(view); err != nil {
					s.logger.Error("a policy cannot precompute", "profile", path, "error", err)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.Cluster.Superseded(view):
		case <-s.enforced:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(precomputePause):
		}
	}
}
