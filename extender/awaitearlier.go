package extender

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

const (
	// earlierTimeout is how long other pods wait for one that should be bound first and that nobody binds here, all of them
	// together. It is a small part of what a caller has left: kube-scheduler's httpTimeout, which is not in the request. A
	// Binding takes some milliseconds; another replica's that takes longer may never come.
	earlierTimeout = 500 * time.Millisecond
	// stallTimeout is how long a pod waits for pods that are being bound here without seeing one of them bound.
	stallTimeout = time.Second
	// earlierRetention is how long it is remembered that a pod was waited for. It is longer than a claim of a pod that is not
	// bound usually stays.
	earlierRetention = 10 * time.Minute
)

// turns says until when pods are waited for that should be bound before others.
type earlierPods struct {
	mu    sync.Mutex
	since map[types.UID]time.Time // when somebody first waited
}

// until returns when the wait for the pod ends, which may have been before now.
func (t *earlierPods) until(uid types.UID, now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	since, known := t.since[uid]
	if !known {
		for other, at := range t.since {
			if now.Sub(at) > earlierRetention {
				delete(t.since, other)
			}
		}
		if t.since == nil {
			t.since = map[types.UID]time.Time{}
		}
		since = now
		t.since[uid] = now
	}
	return since.Add(earlierTimeout)
}

// settled forgets a pod that need not be waited for any more.
func (t *earlierPods) settled(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.since, uid)
}

// awaitEarlier waits until the pods are bound or gone, but not for long: for those that are being bound here, as long as one after
// the other is; and for those of other replicas, which may have been killed, only until somebody has waited for turnTimeout.
func (h *Handler) awaitEarlier(ctx context.Context, node string, after []types.UID) {
	moved := time.Now()
	for _, uid := range after {
		h.InFlight.earlier.until(uid, moved) // begins for all of them
	}
	for len(after) > 0 {
		uid, now, view := after[0], time.Now(), h.Cluster.View()
		if h.settled(uid, view.Node(node)) {
			h.InFlight.earlier.settled(uid)
			after, moved = after[1:], now
			continue
		}
		until := h.InFlight.earlier.until(uid, now)
		if h.InFlight.now().includes(uid, node) {
			until = moved.Add(stallTimeout)
		}
		if !now.Before(until) {
			after = after[1:]
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-h.Cluster.Superseded(view):
		case <-time.After(until.Sub(now)):
		}
	}
}

// settled says whether the pod is bound, or gone, or its node is, which is nil then.
func (h *Handler) settled(uid types.UID, node *snapshot.Node) bool {
	pod := h.Cluster.PodByUID(uid)
	return pod == nil || pod.Spec.NodeName != "" || node == nil || node.Has(uid)
}
