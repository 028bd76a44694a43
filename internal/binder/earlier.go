package binder

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// lookEvery is how often a pod looks at one that this process binds before it, although the call of
// Bind has not ended: the watch may show the other one bound before.
const lookEvery = time.Second

// awaitEarlier waits until the pods are bound or gone; see waiting. Hundreds of pods may wait at
// the same time. So a pod looks when the call of Bind for the next one has ended, and at each new
// View only if there is none.
func (b *Binder) awaitEarlier(ctx context.Context, node string, after []types.UID) error {
	w := waiting{node: node, after: after, stall: cmp.Or(b.StallTimeout, defaultStallTimeout), moved: time.Now()}
	for _, uid := range after {
		b.Awaited.begin(string(uid), w.moved) // the time of all of them
	}
	for len(w.after) > 0 {
		uid, now := w.after[0], time.Now()
		ended := b.Awaited.ended(uid) // before the View is read, which has the outcome if the call ends in between
		view := b.Cluster.View()
		pod := known{done: b.boundOrGone(uid, view.Node(node)), ours: b.Cluster.Assumed(uid) == node, since: b.Awaited.begin(string(uid), now)}
		if pod.done {
			b.Awaited.end(string(uid))
		}
		if w = w.next(now, pod); w.until.IsZero() {
			continue
		}
		changed, until := b.Cluster.Superseded(view), w.until
		if pod.ours && ended != nil {
			changed = ended
			if at := now.Add(lookEvery); at.Before(until) {
				until = at
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the pod with UID %s to be bound to node %s first: %w", uid, node, context.Cause(ctx))
		case <-changed:
		case <-time.After(until.Sub(now)):
		}
	}
	return w.err
}

// boundOrGone reports whether the pod is bound or gone, or its node is gone (nil).
func (b *Binder) boundOrGone(uid types.UID, node *snapshot.Node) bool {
	pod := b.Cluster.PodByUID(uid)
	switch {
	case node == nil, pod != nil && pod.Spec.NodeName != "":
		return true
	case b.Cluster.Assumed(uid) != "": // perhaps the watch does not show the pod yet
		return false
	}
	return pod == nil || node.Has(uid)
}
