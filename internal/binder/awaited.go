package binder

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// awaitedRetention is how long the start of a wait is kept. It is longer than the usual life of a
// claim whose pod is not bound.
const awaitedRetention = 10 * time.Minute

// maxAwaited bounds what is awaited, because the names of ResourceClaims come from callers.
const maxAwaited = 4096

// Awaited holds since when pods wait for what others do and the watch has not shown: a Binding of
// another replica, or a ResourceClaim. Everything is awaited once, and not once for each pod that
// waits. And it holds which pods this process is binding. A process has one. The zero value is
// ready. Its methods may be called concurrently.
type Awaited struct {
	mu      sync.Mutex
	since   map[string]time.Time      // when the first wait started, by the UID of a pod, or the namespace/name of a ResourceClaim
	binding map[types.UID]*bindingPod // those for which Bind is called
}

// begin records that a pod waits, and returns when the first one began to. While too much is
// awaited, nothing else is: it returns a time that is long ago.
func (a *Awaited) begin(key string, now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, known := a.since[key]
	if known && now.Sub(since) <= awaitedRetention {
		return since
	}
	if !known && len(a.since) == maxAwaited {
		maps.DeleteFunc(a.since, func(_ string, at time.Time) bool { return now.Sub(at) > awaitedRetention })
		if len(a.since) == maxAwaited {
			return now.Add(-awaitedRetention)
		}
	}
	if a.since == nil {
		a.since = map[string]time.Time{}
	}
	a.since[key] = now
	return now
}

// end removes what need not be waited for any more.
func (a *Awaited) end(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, key)
}

type bindingPod struct {
	calls int
	ended chan struct{} // closed when the last of the calls has ended
}

// bind records that a call of Bind for the pod begins, and returns what ends it.
func (a *Awaited) bind(uid types.UID) (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.binding[uid]
	if b == nil {
		if a.binding == nil {
			a.binding = map[types.UID]*bindingPod{}
		}
		b = &bindingPod{ended: make(chan struct{})}
		a.binding[uid] = b
	}
	b.calls++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if b.calls--; b.calls == 0 {
			delete(a.binding, uid)
			close(b.ended)
		}
	}
}

// ended returns a channel that is closed when the calls of Bind for the pod have ended; nil if
// there are none.
func (a *Awaited) ended(uid types.UID) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b := a.binding[uid]; b != nil {
		return b.ended
	}
	return nil
}

// Claims waits until the View has the ResourceClaims of the pod. kube-scheduler calls once its own
// watch has shown the claims, which may be earlier. Claims returns when each claim that is missing
// has been awaited for [awaitTimeout], or ctx has ended.
func (a *Awaited) Claims(ctx context.Context, cluster Views, pod *corev1.Pod) {
	var awaited []string
	Wait(ctx, cluster, func(view *snapshot.View, now time.Time) (until time.Time) {
		missing := view.UnknownClaims(pod)
		for _, name := range missing {
			if since := a.begin(pod.Namespace+"/"+name, now); since.Add(awaitTimeout).After(until) {
				until = since.Add(awaitTimeout)
			}
		}
		for _, name := range awaited {
			if !slices.Contains(missing, name) {
				a.end(pod.Namespace + "/" + name)
			}
		}
		awaited = missing
		return until
	})
}

// Views are the views of a cluster.
type Views interface {
	// View returns the latest view. It is never nil.
	View() *snapshot.View
	// Superseded returns a channel that is closed once View returns another View than this one.
	Superseded(view *snapshot.View) <-chan struct{}
}

// Wait calls look with the latest View, and again with each later one, and at the time that look
// returns, until that time has passed or ctx has ended.
func Wait(ctx context.Context, cluster Views, look func(view *snapshot.View, now time.Time) (until time.Time)) {
	for {
		view, now := cluster.View(), time.Now()
		until := look(view, now)
		if !now.Before(until) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-cluster.Superseded(view):
		case <-time.After(until.Sub(now)):
		}
	}
}
