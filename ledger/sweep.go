package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
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

// sweep checks all ledgers once.
func (s *sweeper) sweep(ctx context.Context, now time.Time) {
	seen, empty := map[claimID]time.Time{}, map[types.UID]time.Time{}
	overcommitted := 0
	s.missing = nil
	for _, o := range s.keeper.options.Cache.Ledgers() {
		if ctx.Err() != nil {
			return
		}
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
			s.reclaim(ctx, &o.Spec, p, now.Sub(since))
		}
		s.deleteUnused(ctx, o, now, empty)
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
		lines = append(lines, fmt.Sprintf("ledgers: cannot delete %d unneeded claims or ledgers: grant the permission %q: %v", r.count, r.permission, r.err))
	}
	return lines
}

// reclaim releases one claim if it is no longer needed.
func (s *sweeper) reclaim(ctx context.Context, l *snapshot.Ledger, p *snapshot.LedgerPod, age time.Duration) {
	k := s.keeper
	var why string
	switch cached := k.options.Cache.PodByUID(p.UID); {
	case cached == nil && age < cacheDelay:
		return
	case cached != nil && needOf(cached, l, p) == needed:
		return
	case cached != nil && needOf(cached, l, p) == unbound && age < k.options.ReclaimAfter:
		return
	}
	pod, err := k.options.API.LivePod(ctx, p.Namespace, p.Name, p.UID)
	if err != nil {
		s.lacksPermission("get pods", err)
		return // in the next sweep
	}
	switch needOf(pod, l, p) {
	case needed:
		return
	case unbound:
		if age < k.options.ReclaimAfter {
			return
		}
		// Whoever made the claim may still send the Binding, for this version of the pod. After this, the API server rejects it.
		if pod, err = k.options.API.TouchPod(ctx, p.Namespace, p.Name, p.UID); err != nil || needOf(pod, l, p) == needed {
			s.lacksPermission("patch pods/status", err)
			return
		}
		why = reclaimed
	default:
		why = finished
	}
	if err := k.release(ctx, l.Key(), releaseOperation{p.UID, p.Token, true}); err != nil {
		if s.lacksPermission("update "+Resource.GroupResource().String(), err) {
			return
		}
		k.options.Logger.Warn("cannot release a claim that is no longer needed; trying again", "ledger", Name(l.Key()), "pod", p.Namespace+"/"+p.Name, "error", err)
		return
	}
	k.metrics.released.WithLabelValues(why).Inc()
	if why == reclaimed {
		k.options.Logger.Info("released the claim of a pod that was not bound", "ledger", Name(l.Key()), "pod", p.Namespace+"/"+p.Name, "for", age)
	}
}

// need is whether a pod needs its claim.
type need int

const (
	needed       need = iota
	unbound           // the pod may still be bound
	finishedWith      // the pod will never need it again
)

// needOf reports whether the pod, nil if it does not exist, needs its claim.
func needOf(pod *corev1.Pod, l *snapshot.Ledger, p *snapshot.LedgerPod) need {
	switch {
	case pod == nil, pod.UID != p.UID:
		return finishedWith
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return finishedWith
	case pod.Spec.NodeName == "":
		return unbound
	case l.Node != "" && pod.Spec.NodeName != l.Node:
		return finishedWith
	}
	return needed
}

// finishedClaims returns the operations that release the claims of pods that, by the API server, will never need them again. It
// reads only pods that the cache does not show to need them. The error says that the API server did not answer about some of them,
// so that there may be more. A missing permission is not an error: these claims stay, and sweeps report it.
func (k *Keeper) finishedClaims(ctx context.Context, o *Object) ([]operation, error) {
	var drops []operation
	var unknown error
	for i := range o.Spec.Pods {
		p := &o.Spec.Pods[i]
		if cached := k.options.Cache.PodByUID(p.UID); cached != nil && needOf(cached, &o.Spec, p) != finishedWith {
			continue
		}
		pod, err := k.options.API.LivePod(ctx, p.Namespace, p.Name, p.UID)
		switch {
		case apierrors.IsForbidden(err):
		case err != nil:
			unknown = fmt.Errorf("reading pod %s/%s, which has a claim: %w", p.Namespace, p.Name, err)
		case needOf(pod, &o.Spec, p) == finishedWith:
			drops = append(drops, operation{release: &releaseOperation{p.UID, p.Token, true}})
		}
	}
	return drops, unknown
}

// deleteUnused deletes the ledger of a node that was deleted a while ago, if it has no claims.
func (s *sweeper) deleteUnused(ctx context.Context, o *Object, now time.Time, empty map[types.UID]time.Time) {
	k := s.keeper
	if o.Spec.Node == "" || len(o.Spec.Pods) > 0 || k.options.Cache.View().Node(o.Spec.Node) != nil {
		return
	}
	since, known := s.empty[o.UID]
	if !known {
		since = now
	}
	if empty[o.UID] = since; now.Sub(since) < k.options.ReclaimAfter {
		return
	}
	if err := k.options.API.DeleteLedger(ctx, o); err != nil && !s.lacksPermission("delete "+Resource.GroupResource().String(), err) {
		k.options.Logger.Warn("cannot delete the ledger of a deleted node; trying again", "ledger", o.Name, "error", err)
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
