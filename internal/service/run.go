package service

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Run follows the cluster and the signals, maintains ledgers, requeues pods, and lets policies
// precompute, until ctx ends. It may be called once.
func (s *Service) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	run := func(f func(context.Context)) {
		group.Go(func() error {
			f(ctx)
			return nil
		})
	}
	if s.journal != nil {
		run(s.journal.Run)
	}
	run(s.readSignals)
	if s.Cluster != nil {
		group.Go(func() error { return s.Cluster.Run(ctx) })
		run(s.keepLedgers)
		run(s.survey)
	}
	if s.Requeuer != nil {
		run(s.Requeuer.Run)
	}
	if s.count != nil {
		run(func(ctx context.Context) {
			wait.UntilWithContext(ctx, func(context.Context) { s.count() }, 20*time.Second)
		})
	}
	run(s.precompute)
	run(s.retryReloads)
	return group.Wait()
}

// readSignals waits for the first state of the cluster, and reads signals until ctx ends. Readings
// are dated with the API server's time. It is unknown before, so a later reading could get an
// earlier time.
func (s *Service) readSignals(ctx context.Context) {
	if s.Cluster != nil {
		_ = s.Cluster.WaitForSync(ctx) // otherwise ctx has ended
	}
	s.signals.Run(ctx)
}

// keepLedgers runs the Keeper from when a policy allocates resources until ctx ends.
func (s *Service) keepLedgers(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.allocated:
	}
	// Before, it is unknown which pods exist, and allocations of existing pods must not be
	// released.
	if s.Cluster.WaitForSync(ctx) == nil {
		s.Keeper.Run(ctx)
	}
}

// survey repeats the survey from when the cluster has been read until ctx ends.
func (s *Service) survey(ctx context.Context) {
	if s.Cluster.WaitForSync(ctx) == nil {
		s.surveyor.Run(ctx)
	}
}

// precomputePause is the time between a new View, or new profiles, and Engine.Precompute. Calls
// need the result about a hundred pods later.
const precomputePause = 200 * time.Millisecond

// precompute lets policies compute in advance what later requests need, until ctx ends.
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
		case <-s.activated:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(precomputePause):
		}
	}
}
