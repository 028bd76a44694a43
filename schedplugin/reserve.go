package schedplugin

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
)

// Reserve implements fwk.ReservePlugin. From now on the pod counts on the node, with the
// annotations that it will probably get. Nothing is written: the framework may revert what it has
// reserved.
func (p *plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, name string) *fwk.Status {
	c, err := cycleOf(state)
	if err != nil {
		return nil // no policy applies to the pod
	}
	p.mu.Lock()
	delete(p.failed, pod.UID)
	p.mu.Unlock()
	c.succeeds(1) // unless PreScore has: the framework does not score a single node
	node := c.view.Node(name)
	switch {
	case node == nil && c.engine.Reserves():
		return fwk.AsStatus(engine.UnknownNodeError(name)) // kube-scheduler retries the pod after its backoff
	case node == nil:
		return nil // no policy sees the pod there
	}
	planned, allocations := c.engine.Planned(c.view, c.pod, c.engine.CountNominated(c.view, c.pod, node), time.Now())
	if allocations {
		if err := p.checkOrder(); err != nil {
			return fwk.AsStatus(err)
		}
	}
	c.forget, c.allocations = p.service.Cluster.Assume(planned, name), allocations
	return nil
}

// Unreserve implements fwk.ReservePlugin. Bind has released the allocations already, unless the
// outcome of the Binding is unknown.
func (p *plugin) Unreserve(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ string) {
	if c, err := cycleOf(state); err == nil && c.forget != nil {
		c.forget()
		c.forget = nil
	}
}

// Bind implements fwk.BindPlugin. It binds pods to which policies allocate resources, with their
// allocations, and leaves the others to the next plugin. Without a reservation, policies may
// allocate resources to any pod to which they apply.
func (p *plugin) Bind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, name string) *fwk.Status {
	c, err := cycleOf(state)
	if err != nil || c.forget != nil && !c.allocations || !c.engine.Reserves() {
		return fwk.NewStatus(fwk.Skip)
	}
	started, record := time.Now(), &decision.Record{Pod: decision.PodOf(pod), Bound: name}
	err = p.bind(ctx, c, name, record)
	p.add(c.profile, decision.Bind, started, record, nil, err)
	if err != nil {
		return fwk.AsStatus(err)
	}
	return nil
}

// PostBind implements fwk.PostBindPlugin. The pod counts on the node until the watch shows it
// there.
func (p *plugin) PostBind(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ string) {
	if c, err := cycleOf(state); err == nil && c.forget != nil {
		p.service.Cluster.FinishBinding(pod.UID, time.Now())
		c.forget()
		c.forget = nil
	}
}

// stallTimeout is longer than an allocation and a Binding take before they fail. Nobody gives up in
// the meantime, as the caller of an extender does, and to bind a pod that has failed costs the API
// server more than the wait: its allocation is released, its status is written, and another
// allocation is made.
const stallTimeout = 30 * time.Second

func (p *plugin) bind(ctx context.Context, c *cycle, name string, record *decision.Record) error {
	cluster := p.service.Cluster
	ctx, err := cluster.Throttle(ctx) // which may take long, so before the pod and the View are read
	if err != nil {
		return err
	}
	b := binder.Binder{
		Engine: c.engine, Cluster: cluster, Ledgers: p.service.Keeper, Awaited: &p.awaited, StallTimeout: stallTimeout,
		Why: func(pod *corev1.Pod, node string) string {
			record.Summary = p.service.Log.Why(pod, c.profile, node)
			return record.Summary
		},
	}
	pod := cluster.PodByUID(c.pod.UID) // its version may be newer
	if pod == nil {
		pod = c.pod
	}
	view := cluster.ViewFor(pod.UID)
	node := view.Node(name)
	if node == nil {
		return engine.UnknownNodeError(name)
	}
	held, err := b.Bind(ctx, pod, binder.Target{View: view, Node: c.engine.CountNominated(view, pod, node)})
	record.Allocations = held.Record()
	return err
}
