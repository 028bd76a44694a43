package binder

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// earlierRetention is how long the start of a wait is kept. It is longer than the usual life of a claim whose pod
// is not bound.
const earlierRetention = 10 * time.Minute

// Earlier holds since when pods wait for pods that should be bound before them, and that another replica binds. All Binders of a process
// share one. The zero value is ready. Its methods may be called concurrently.
type Earlier struct {
	mu    sync.Mutex
	since map[types.UID]time.Time // when the first wait for the pod started
}

// begin records that a pod waits for the pod, and returns when the first one began to.
func (e *Earlier) begin(uid types.UID, now time.Time) time.Time {
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
	return since
}

// end removes a pod that need not be waited for any more.
func (e *Earlier) end(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.since, uid)
}

// awaitEarlier waits until the pods are bound or gone; see waiting.
func (b *Binder) awaitEarlier(ctx context.Context, node string, after []types.UID) error {
	w := waiting{node: node, after: after, moved: time.Now()}
	for _, uid := range after {
		b.Earlier.begin(uid, w.moved) // the time of all of them
	}
	for len(w.after) > 0 {
		uid, now, view := w.after[0], time.Now(), b.Cluster.View()
		pod := known{done: b.boundOrGone(uid, view.Node(node)), ours: b.Cluster.Assumed(uid) == node, since: b.Earlier.begin(uid, now)}
		if pod.done {
			b.Earlier.end(uid)
		}
		if w = w.next(now, pod); w.until.IsZero() {
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the pod with UID %s to be bound to node %s first: %w", uid, node, context.Cause(ctx))
		case <-b.Cluster.Superseded(view):
		case <-time.After(w.until.Sub(now)):
		}
	}
	return w.err
}

// boundOrGone reports whether the pod is bound or gone, or its node is gone (nil).
func (b *Binder) boundOrGone(uid types.UID, node *snapshot.Node) bool {
	pod := b.Cluster.PodByUID(uid)
	return pod == nil || pod.Spec.NodeName != "" || node == nil || node.Has(uid) && b.Cluster.Assumed(uid) == ""
}
