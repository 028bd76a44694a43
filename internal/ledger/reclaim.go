package ledger

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"outboard.dev/outboard/snapshot"
)

// maxParallel bounds how many pods are read, or ledgers written, at the same time. A bind call that waits for the client-side rate
// limit waits for at most that many of these requests.
const maxParallel = 8

// inParallel calls f with 0 to n-1, at most maxParallel of them at the same time, and returns when all have returned.
func inParallel(n int, f func(i int)) {
	var group errgroup.Group
	group.SetLimit(maxParallel)
	for i := range n {
		group.Go(func() error {
			f(i)
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
}

// suspect is a claim that is no longer needed according to the cache, which may be stale.
type suspect struct {
	ledger *snapshot.Ledger
	pod    *snapshot.LedgerPod
	age    time.Duration // since the sweeper first saw the claim
	// reason is why the claim is released: a label value of the metric, or "" if the claim stays.
	reason string
	// err is why the claim stays nevertheless. permission is the one that is missing if err is Forbidden.
	err        error
	permission string
}

// suspected reports whether a sweep checks the claim with the API server.
func (k *Keeper) suspected(l *snapshot.Ledger, p *snapshot.LedgerPod, age time.Duration) bool {
	cached := k.options.Cache.PodByUID(p.UID)
	if cached == nil {
		return age >= cacheDelay
	}
	return k.expired(needOf(cached, l, p), age)
}

// expired reports whether a claim of that age, which its pod needs as much as that, is released.
func (k *Keeper) expired(n need, age time.Duration) bool {
	return n == finishedWith || n == unbound && age >= k.options.ReclaimAfter
}

// reclaim releases the claims that are no longer needed by the API server. The suspects of one ledger are next to each other.
func (s *sweeper) reclaim(ctx context.Context, suspects []suspect) {
	k := s.keeper
	inParallel(len(suspects), func(i int) { k.examine(ctx, &suspects[i]) })
	var ledgers [][]*suspect
	for i := range suspects {
		c := &suspects[i]
		switch n := len(ledgers); {
		case c.reason == "":
		case n > 0 && ledgers[n-1][0].ledger == c.ledger:
			ledgers[n-1] = append(ledgers[n-1], c)
		default:
			ledgers = append(ledgers, []*suspect{c})
		}
	}
	inParallel(len(ledgers), func(i int) { k.releaseTogether(ctx, ledgers[i]) })
	for i := range suspects {
		if suspects[i].err == nil || ctx.Err() == nil {
			s.account(&suspects[i])
		}
	}
}

// examine reads the pod of the claim and decides whether the claim is released. Before it decides that for a pod that may still be bound,
// it changes the pod.
func (k *Keeper) examine(ctx context.Context, c *suspect) {
	p := c.pod
	pod, err := k.options.API.LivePod(ctx, p.Namespace, p.Name, p.UID)
	if err != nil {
		c.err, c.permission = err, "get pods"
		return
	}
	n := needOf(pod, c.ledger, p)
	switch {
	case !k.expired(n, c.age):
		return
	case n == finishedWith:
		c.reason = finished
		return
	}
	// Whoever made the claim may still send the Binding, for this version of the pod. After this, the API server rejects it.
	if pod, err = k.options.API.TouchPod(ctx, p.Namespace, p.Name, p.UID); err != nil {
		c.err, c.permission = err, "patch pods/status"
	} else if needOf(pod, c.ledger, p) != needed {
		c.reason = reclaimed
	}
}

// releaseTogether releases claims of one ledger, with few writes.
func (k *Keeper) releaseTogether(ctx context.Context, claims []*suspect) {
	var releases sync.WaitGroup
	for _, c := range claims {
		releases.Go(func() {
			c.err = k.release(ctx, c.ledger.Key(), releaseOperation{c.pod.UID, c.pod.Token, true})
			c.permission = "update " + Resource.GroupResource().String()
		})
	}
	releases.Wait()
}

// account counts and logs what became of the claim. What could not be read or written is tried again in the next sweep.
func (s *sweeper) account(c *suspect) {
	k, pod := s.keeper, c.pod.Namespace+"/"+c.pod.Name
	switch {
	case c.err != nil && s.lacksPermission(c.permission, c.err), c.reason == "":
	case c.err != nil:
		k.options.Logger.Warn("cannot release a claim that is no longer needed; trying again", "ledger", Name(c.ledger.Key()), "pod", pod, "error", c.err)
	default:
		k.metrics.released.WithLabelValues(c.reason).Inc()
		if c.reason == reclaimed {
			k.options.Logger.Info("released the claim of a pod that was not bound", "ledger", Name(c.ledger.Key()), "pod", pod, "for", c.age)
		}
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
	case snapshot.Ended(pod):
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
	var read []*snapshot.LedgerPod
	for i := range o.Spec.Pods {
		p := &o.Spec.Pods[i]
		if cached := k.options.Cache.PodByUID(p.UID); cached == nil || needOf(cached, &o.Spec, p) == finishedWith {
			read = append(read, p)
		}
	}
	pods, errs := make([]*corev1.Pod, len(read)), make([]error, len(read))
	inParallel(len(read), func(i int) {
		pods[i], errs[i] = k.options.API.LivePod(ctx, read[i].Namespace, read[i].Name, read[i].UID)
	})
	var drops []operation
	var unknown error
	for i, p := range read {
		switch {
		case apierrors.IsForbidden(errs[i]):
		case errs[i] != nil:
			unknown = fmt.Errorf("reading pod %s/%s, which has a claim: %w", p.Namespace, p.Name, errs[i])
		case needOf(pods[i], &o.Spec, p) == finishedWith:
			drops = append(drops, operation{release: &releaseOperation{p.UID, p.Token, true}})
		}
	}
	return drops, unknown
}
