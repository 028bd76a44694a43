package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// Run releases allocations that are no longer needed, until ctx ends: those of pods that are
// deleted, have ended, or are bound to another node, and of pods that are not bound in time. It
// deletes the ledgers of deleted nodes that have no allocations.
func (k *Keeper) Run(ctx context.Context) {
	s := sweeper{keeper: k}
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.sweep(ctx, time.Now())
		}
	}
}

// Warnings returns a line for each permission that the latest sweep lacked.
func (k *Keeper) Warnings() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var lines []string
	for _, permission := range slices.Sorted(maps.Keys(k.missing)) {
		r := k.missing[permission]
		lines = append(lines, fmt.Sprintf("ledgers: cannot delete unneeded allocations or ledgers (%d): grant the permission %q: %v", r.count, permission, r.err))
	}
	return lines
}

// sweeper holds since when it has seen each allocation. It measures ages by this process's own
// clock, so that clocks that differ, or are changed, cannot make an allocation old.
type sweeper struct {
	keeper *Keeper
	seen   map[allocationID]time.Time // also each ledger without allocations whose node is gone, without a token
	// missing are the permissions that the current sweep lacks.
	missing missing
}

type allocationID struct {
	ledger, token string
	uid           types.UID
}

// sweep checks all ledgers once. If ctx ends, it stops and reports nothing.
func (s *sweeper) sweep(ctx context.Context, now time.Time) {
	k, seen, overcommitted := s.keeper, map[allocationID]time.Time{}, 0
	age := func(id allocationID) time.Duration {
		since, known := s.seen[id]
		if !known {
			since = now
		}
		seen[id] = since
		return now.Sub(since)
	}
	var suspects []Examination
	var unused []*Object
	for _, o := range k.options.Cache.Ledgers() {
		for i := range o.Spec.Units {
			if o.Spec.Units[i].Used() > o.Spec.Units[i].Capacity {
				overcommitted++
			}
		}
		for i := range o.Spec.Pods {
			p := &o.Spec.Pods[i]
			e := Examination{Ledger: &o.Spec, Allocation: p, Age: age(allocationID{o.Name, p.Token, p.UID}), Limit: k.options.ReclaimAfter}
			if e = e.Next(k.options.Cache.PodByUID(p.UID), nil); e.Request != KeepAllocation {
				suspects = append(suspects, e)
			}
		}
		if o.Spec.Node != "" && len(o.Spec.Pods) == 0 && k.options.Cache.View().Node(o.Spec.Node) == nil &&
			age(allocationID{ledger: o.Name, uid: o.UID}) >= k.options.ReclaimAfter {
			unused = append(unused, o)
		}
	}
	s.missing = missing{}
	s.reclaim(ctx, suspects)
	s.delete(ctx, unused)
	if ctx.Err() != nil {
		return
	}
	s.seen = seen
	k.metrics.overcommitted.Set(float64(overcommitted))
	k.report(s.missing)
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.queues, func(_ string, q *Queue) bool { return q.Forget() })
}

// reclaim releases the allocations that are no longer needed by the API server.
func (s *sweeper) reclaim(ctx context.Context, suspects []Examination) {
	k := s.keeper
	k.examine(ctx, suspects)
	byLedger := map[*snapshot.Ledger][]*Examination{}
	for i := range suspects {
		if e := &suspects[i]; e.Request == ReleaseAllocation {
			byLedger[e.Ledger] = append(byLedger[e.Ledger], e)
		}
	}
	ledgers := slices.Collect(maps.Values(byLedger))
	inParallel(len(ledgers), func(i int) {
		var releases sync.WaitGroup // of one ledger, which are written together
		for _, e := range ledgers[i] {
			releases.Go(func() { e.Err = k.release(ctx, e.Ledger.Key(), e.Release()) })
		}
		releases.Wait()
	})
	for i := range suspects {
		if suspects[i].Err == nil || ctx.Err() == nil {
			s.account(&suspects[i])
		}
	}
}

// account counts and logs what became of the allocation. What could not be read or written is tried
// again in the next sweep.
func (s *sweeper) account(e *Examination) {
	k, pod := s.keeper, e.Allocation.Namespace+"/"+e.Allocation.Name
	switch {
	case e.Err != nil && s.missing.add(string(e.Request), e.Err), e.reason == "":
	case e.Err != nil:
		k.options.Logger.Warn("cannot release an allocation that is no longer needed; trying again", "ledger", Name(e.Ledger.Key()), "pod", pod, "error", e.Err)
	default:
		k.metrics.released.WithLabelValues(e.reason).Inc()
		if e.reason == reclaimed {
			k.options.Logger.Info("released the allocation of a pod that was not bound", "ledger", Name(e.Ledger.Key()), "pod", pod, "for", e.Age)
		}
	}
}

// delete deletes the ledgers.
func (s *sweeper) delete(ctx context.Context, ledgers []*Object) {
	k := s.keeper
	errs := make([]error, len(ledgers))
	inParallel(len(ledgers), func(i int) { errs[i] = k.options.API.DeleteLedger(ctx, ledgers[i]) })
	for i, err := range errs {
		if err != nil && ctx.Err() == nil && !s.missing.add("delete "+Resource.GroupResource().String(), err) {
			k.options.Logger.Warn("cannot delete the ledger of a deleted node; trying again", "ledger", ledgers[i].Name, "error", err)
		}
	}
}

// missing are the permissions that a sweep lacked.
type missing map[string]struct {
	count int // how many allocations and ledgers stay because of it
	err   error
}

// add reports whether the error means that the permission is missing, and records it.
func (m missing) add(permission string, err error) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	r := m[permission]
	r.count, r.err = r.count+1, err
	m[permission] = r
	return true
}

// report publishes the permissions that a sweep lacked. A permission is logged when it is first
// missing, not in every sweep.
func (k *Keeper) report(missing missing) {
	k.mu.Lock()
	before := k.missing
	k.missing = missing
	k.mu.Unlock()
	count := 0
	for permission, r := range missing {
		count += r.count
		if _, known := before[permission]; !known {
			k.options.Logger.Warn("cannot delete unneeded allocations or ledgers: a permission is missing", "permission", permission, "count", r.count, "error", r.err)
		}
	}
	k.metrics.missing.Set(float64(count))
}
