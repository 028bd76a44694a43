package binder

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

const (
	// earlierTimeout bounds the wait for a pod that should be bound first and that this process does not bind. It runs
	// once for each such pod, not once for each pod that waits. It must be well below kube-scheduler's httpTimeout,
	// which is not in the request. A Binding takes some milliseconds; if another replica takes longer, its Binding may
	// never come.
	earlierTimeout = 500 * time.Millisecond
	// stallTimeout is how long a pod waits for pods that this process binds if none of them gets bound: then it is not bound either, and
	// kube-scheduler retries it. It is below the usual httpTimeout, so that kube-scheduler learns the cause.
	stallTimeout = 2 * time.Second
	// earlierRetention is how long the start of a wait is kept. It is longer than the usual life of a claim whose pod
	// is not bound.
	earlierRetention = 10 * time.Minute
)

// Earlier holds since when pods wait for pods that should be bound before them, and that another replica binds. All Binders of a process
// share one. The zero value is ready. Its methods may be called concurrently.
type Earlier struct {
	mu    sync.Mutex
	since map[types.UID]time.Time // when the first wait for the pod started
}

// until returns when the wait for the pod ends, which may be before now.
func (e *Earlier) until(uid types.UID, now time.Time) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	since, known := e.since[uid]
	if !known {
		for other, at := range e.since {
			if now.Sub(at) > earlierRetention {
				delete(e.since, other)
			}
		}
		if e.since == nil {
			e.since = map[types.UID]time.Time{}
		}
		since = now
		e.since[uid] = now
	}
	return since.Add(earlierTimeout)
}

// settled removes a pod that need not be waited for any more.
func (e *Earlier) settled(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.since, uid)
}

// awaitEarlier waits until the pods are bound or gone. For pods of other replicas, which may have been killed, it waits at most
// earlierTimeout for all waiting pods together. It returns an error if a pod that this process binds is still not bound: to bind another
// one before it would give both the wrong units.
func (b *Binder) awaitEarlier(ctx context.Context, node string, after []types.UID) error {
	moved := time.Now()
	for _, uid := range after {
		b.Earlier.until(uid, moved) // start the time of all of them
	}
	for len(after) > 0 {
		uid, now, view := after[0], time.Now(), b.Cluster.View()
		if b.settled(uid, view.Node(node)) {
			b.Earlier.settled(uid)
			after, moved = after[1:], now
			continue
		}
		until, ours := b.Earlier.until(uid, now), b.Cluster.Assumed(uid) == node
		if ours {
			until = moved.Add(stallTimeout)
		}
		if !now.Before(until) {
			if ours {
				return fmt.Errorf("another pod must be bound to node %s first, and that takes long: the pod with UID %s", node, uid)
			}
			after = after[1:]
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the pod with UID %s to be bound to node %s first: %w", uid, node, context.Cause(ctx))
		case <-b.Cluster.Superseded(view):
		case <-time.After(until.Sub(now)):
		}
	}
	return nil
}

// settled reports whether the pod is bound or gone, or its node is gone (nil).
func (b *Binder) settled(uid types.UID, node *snapshot.Node) bool {
	pod := b.Cluster.PodByUID(uid)
	return pod == nil || pod.Spec.NodeName != "" || node == nil || node.Has(uid) && b.Cluster.Assumed(uid) == ""
}
