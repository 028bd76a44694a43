package binder

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// awaitEarlier waits until the pods are bound or gone; see waiting.
func (b *Binder) awaitEarlier(ctx context.Context, node string, after []types.UID) error {
	w := waiting{node: node, after: after, stall: cmp.Or(b.Patience, stallTimeout), moved: time.Now()}
	for _, uid := range after {
		b.Awaited.begin(string(uid), w.moved) // the time of all of them
	}
	for len(w.after) > 0 {
		uid, now, view := w.after[0], time.Now(), b.Cluster.View()
		pod := known{done: b.boundOrGone(uid, view.Node(node)), ours: b.Cluster.Assumed(uid) == node, since: b.Awaited.begin(string(uid), now)}
		if pod.done {
			b.Awaited.end(string(uid))
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
