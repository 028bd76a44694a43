package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// cacheDelay is the minimum age of a claim before a sweep reads its pod from the API server if the cache lacks it: usually the
// cache has it a moment later.
const cacheDelay = 2 * time.Second

// sweeper holds since when it has seen each claim. It measures ages by this process's own clock, so that clocks that
// differ, or are changed, cannot make a claim old.
type sweeper struct {
	keeper *Keeper
	seen   map[claimID]time.Time
	empty  map[types.UID]time.Time // ledgers without claims whose node is gone
	// missing are the permissions that the current sweep lacks.
	missing []missingPermission
}

// missingPermission is a permission that a sweep lacks.
type missingPermission struct {
	permission string
	count      int // how many claims and ledgers stay because of it
	err        error
}

func newSweeper(k *Keeper) *sweeper {
	return &sweeper{keeper: k, seen: map[claimID]time.Time{}, empty: map[types.UID]time.Time{}}
}

type claimID struct {
	ledger, token string
	uid           types.UID
}

// Run releases claims that are no longer needed, until ctx ends: those of pods that are deleted, have ended, or are bound to
// another node, and of pods that are not bound in time. It deletes the ledgers of deleted nodes that have no claims.
func (k *Keeper) Run(ctx context.Context) {
	s := newSweeper(k)
	ticker := time.NewTicker(k.options.SweepInterval)
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

// sweep checks all ledgers once. If ctx ends, it stops and reports nothing.
func (s *sweeper) sweep(ctx context.Context, now time.Time) {
	seen, empty := map[claimID]time.Time{}, map[types.UID]time.Time{}
	overcommitted := 0
	var suspects []suspect
	var unused []*Object
	for _, o := range s.keeper.options.Cache.Ledgers() {
		for i := range o.Spec.Units {
			if o.Spec.Units[i].Used() > o.Spec.Units[i].Capacity {
				overcommitted++
			}
		}
		for i := range o.Spec.Pods {
			p := &o.Spec.Pods[i]
			id := claimID{o.Name, p.Token, p.UID}
			since, known := s.seen[id]
			if !known {
				since = now
			}
			seen[id] = since
			if age := now.Sub(since); s.keeper.suspected(&o.Spec, p, age) {
				suspects = append(suspects, suspect{ledger: &o.Spec, pod: p, age: age})
			}
		}
		if s.unused(o, now, empty) {
			unused = append(unused, o)
		}
	}
	s.missing = nil
	s.reclaim(ctx, suspects)
	s.delete(ctx, unused)
	if ctx.Err() != nil {
		return
	}
	s.seen, s.empty = seen, empty
	s.keeper.metrics.overcommitted.Set(float64(overcommitted))
	s.keeper.report(s.missing)
	s.keeper.prune()
}

// lacksPermission reports whether the error means that a permission is missing, and records it.
func (s *sweeper) lacksPermission(permission string, err error) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	i := slices.IndexFunc(s.missing, func(r missingPermission) bool { return r.permission == permission })
	if i < 0 {
		i = len(s.missing)
		s.missing = append(s.missing, missingPermission{permission: permission, err: err})
	}
	s.missing[i].count++
	return true
}

// report publishes the permissions that a sweep lacked. A permission is logged when it is first missing, not in every sweep.
func (k *Keeper) report(missing []missingPermission) {
	k.mu.Lock()
	before := k.missing
	k.missing = missing
	k.mu.Unlock()
	count := 0
	for _, r := range missing {
		count += r.count
		if !slices.ContainsFunc(before, func(b missingPermission) bool { return b.permission == r.permission }) {
			k.options.Logger.Warn("cannot delete unneeded claims or ledgers: a permission is missing", "permission", r.permission, "count", r.count, "error", r.err)
		}
	}
	k.metrics.missing.Set(float64(count))
}

// Warnings returns a line for each permission that the latest sweep lacked.
func (k *Keeper) Warnings() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var lines []string
	for _, r := range k.missing {
		lines = append(lines, fmt.Sprintf("ledgers: cannot delete unneeded claims or ledgers (%d): grant the permission %q: %v", r.count, r.permission, r.err))
	}
	return lines
}

// unused reports whether the ledger has no claims and is that of a node that was deleted a while ago. It adds the ledgers of deleted nodes
// that have no claims to empty.
func (s *sweeper) unused(o *Object, now time.Time, empty map[types.UID]time.Time) bool {
	if o.Spec.Node == "" || len(o.Spec.Pods) > 0 || s.keeper.options.Cache.View().Node(o.Spec.Node) != nil {
		return false
	}
	since, known := s.empty[o.UID]
	if !known {
		since = now
	}
	empty[o.UID] = since
	return now.Sub(since) >= s.keeper.options.ReclaimAfter
}

// delete deletes the ledgers.
func (s *sweeper) delete(ctx context.Context, ledgers []*Object) {
	k := s.keeper
	errs := make([]error, len(ledgers))
	inParallel(len(ledgers), func(i int) { errs[i] = k.options.API.DeleteLedger(ctx, ledgers[i]) })
	for i, err := range errs {
		if err != nil && ctx.Err() == nil && !s.lacksPermission("delete "+Resource.GroupResource().String(), err) {
			k.options.Logger.Warn("cannot delete the ledger of a deleted node; trying again", "ledger", ledgers[i].Name, "error", err)
		}
	}
}

// prune removes the queues of ledgers that are up to date in the cache, or deleted: a ledger just written is in the cache
// before a second sweep. A removed ledger is read again when it is needed.
func (k *Keeper) prune() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, b := range k.queues {
		cached := k.options.Cache.Ledger(name)
		switch {
		case b.writing:
		case b.written == nil, b.missing && cached == nil, cached != nil && k.newest(name, b.written) == cached:
			delete(k.queues, name)
		default:
			b.missing = cached == nil
		}
	}
}
