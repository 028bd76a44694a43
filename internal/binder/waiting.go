package binder

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// awaitTimeout bounds the wait for a pod that should be bound first and that this process does
	// not bind, and for a ResourceClaim. It runs once for each of them, not once for each pod that
	// waits. It must be well below kube-scheduler's httpTimeout, which is not in the request. A
	// Binding takes some milliseconds; if another replica takes longer, its Binding may never come.
	awaitTimeout = 500 * time.Millisecond
	// defaultStallTimeout is that of a Binder without another one.
	defaultStallTimeout = 2 * time.Second
)

// waiting is the wait of a pod for those that must be bound to its node before it. It is a value
// without client, clock or goroutine: next returns the following state, and a Binder looks and
// waits.
//
//	the first pod is bound or gone ───────────────────────────► the next pod
//	this process binds it, none is bound for StallTimeout ────► end: the pod that waits is not bound
//	another replica binds it, and it is awaited for 500 ms ───► the next pod
//	otherwise ────────────────────────────────────────────────► look at it again after a change, or at that time
//
// To bind a pod before one that this process binds would give both the wrong units. Another replica
// may have been killed.
type waiting struct {
	node  string
	after []types.UID   // those still to wait for; empty: the end
	stall time.Duration // the StallTimeout
	moved time.Time     // when the wait began, or one of the pods was last bound or gone
	until time.Time     // when to look again even if nothing changes; zero: at once
	err   error         // in the end, why the pod that waits must not be bound
}

// known is what is known about the pod to wait for.
type known struct {
	done  bool      // it is bound or gone, or the node is gone
	ours  bool      // this process binds it
	since time.Time // when the first pod began to wait for it
}

// next returns the state after a look at the first pod.
func (w waiting) next(now time.Time, pod known) waiting {
	uid, until := w.after[0], pod.since.Add(awaitTimeout)
	if pod.ours {
		until = w.moved.Add(w.stall)
	}
	w.until = time.Time{}
	switch {
	case pod.done:
		w.after, w.moved = w.after[1:], now
	case now.Before(until):
		w.until = until
	case pod.ours:
		w.after, w.err = nil, fmt.Errorf("another pod must be bound to node %s first, and that takes long: the pod with UID %s", w.node, uid)
	default:
		w.after = w.after[1:]
	}
	return w
}
