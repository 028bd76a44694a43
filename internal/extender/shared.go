package extender

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// Shared is what all Handlers of a process share, including those that a reload creates. The methods of Handler use it concurrently.
type Shared struct {
	awaited   binder.Awaited
	admission chan struct{} // capacity 1; held while a pod is being admitted
	rejected  rejections
	unseen    unseen
}

// NewShared returns what the Handlers of a process share.
func NewShared() *Shared { return &Shared{admission: make(chan struct{}, 1)} }

// admit filters the node again, and assumes the pod on it, with the annotations that it will probably get: until its claims are made,
// they show which units of the node it takes. It admits one pod at a time, so that two pods do not get the same units. forget must be
// called once the pod is bound, or will not be.
func (h *Handler) admit(ctx context.Context, c *call, pod *corev1.Pod, name string) (target binder.Target, forget func(), err error) {
	select {
	case h.Shared.admission <- struct{}{}:
		defer func() { <-h.Shared.admission }()
	case <-ctx.Done():
		return target, nil, fmt.Errorf("waiting for other pods to be admitted: %w", context.Cause(ctx))
	}
	view, err := h.view(pod.UID)
	if err != nil {
		return target, nil, err
	}
	c.record.Generation = view.Generation()
	node := view.Node(name)
	if node == nil {
		return target, nil, engine.UnknownNodeError(name)
	}
	if err := h.allowed(pod, node); err != nil {
		return target, nil, err
	}
	record := c.record
	evaluated := pod
	if n := nominationOf(pod.UID, view); n != nil && pod.Status.NominatedNodeName != name {
		if _, ok := n.Node(name); ok { // the view does not show yet that it is this node
			nominated := *pod
			nominated.Status.NominatedNodeName = name
			evaluated = &nominated
		}
	}
	err = h.Engine.Filter(ctx, engine.Request{Pod: evaluated, View: view, Nodes: []*snapshot.Node{node}}, &c.result)
	record.Policies, record.Rejections = c.result.Record.Policies, c.result.Record.Rejections
	if err != nil {
		return target, nil, err
	}
	if len(c.result.Rejected) > 0 {
		return target, nil, fmt.Errorf("node %q does not fit any more: %s", name, c.result.Rejected[0].Reason.Text)
	}
	target = binder.Target{View: view, Node: h.Engine.CountNominated(view, evaluated, node)}
	planned, _ := h.Engine.Planned(view, pod, target.Node, time.Now())
	return target, h.Cluster.Assume(planned, name), nil
}
