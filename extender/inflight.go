package extender

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/binder"
	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/snapshot"
)

// InFlight holds pods that no View shows yet: pods that are being bound, and pods for which others have just been
// evicted. All Handlers of a process share one InFlight, including those that a reload creates. The methods of Handler
// use it concurrently.
type InFlight struct {
	binder.InFlight
	admission chan struct{} // capacity 1; held while a pod is being admitted
	preempted preempted
}

// NewInFlight returns an InFlight without pods.
func NewInFlight() *InFlight { return &InFlight{admission: make(chan struct{}, 1)} }

// admitted is a pod that is being bound.
type admitted struct {
	binder.Target
	// leave must be called once the View has the pod, or the pod is not bound.
	leave func()
}

// admit filters the node again, with all pods that are being bound, and adds the pod to these, with the annotations
// that it will probably get: until its claims are made, they show which units of the node it takes. It admits one pod
// at a time, so that two pods do not get the same units.
func (h *Handler) admit(ctx context.Context, c *call, pod *corev1.Pod, name string) (*admitted, error) {
	f := h.InFlight
	select {
	case f.admission <- struct{}{}:
		defer func() { <-f.admission }()
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for other pods to be admitted: %w", context.Cause(ctx))
	}
	pods := f.Now()
	view, err := h.clusterView()
	if err != nil {
		return nil, err
	}
	c.record.Generation = view.Generation()
	node := view.Node(name)
	if node == nil {
		return nil, fmt.Errorf("node %q is not known to Outboard yet", name)
	}
	if err := h.allowed(pod, node); err != nil {
		return nil, err
	}
	all := f.Complete(view, pods, pod.UID)
	nominations := f.preempted.now(view, c.started)
	record := c.record
	err = h.Engine.Filter(ctx, engine.Request{Pod: pod, View: all, Nodes: []*snapshot.Node{all.Node(name)}, Nominations: nominations}, &c.result)
	record.Policies, record.Rejections = c.result.Record.Policies, c.result.Record.Rejections
	if err != nil {
		return nil, err
	}
	if len(c.result.Rejected) > 0 {
		return nil, fmt.Errorf("node %q does not fit any more: %s", name, c.result.Rejected[0].Reason.Text)
	}
	planned, _ := binder.WithPlannedClaims(ctx, h.Engine, all, pod, h.Engine.CountNominated(all, nominations, pod, all.Node(name)))
	return &admitted{binder.Target{View: view, Node: h.Engine.CountNominated(all, nominations, pod, node)}, f.Begin(name, planned)}, nil
}
