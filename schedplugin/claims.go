package schedplugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/binder"
	"outboard.dev/outboard/decision"
)

// reservation is a pod that is being bound.
type reservation struct {
	uid    types.UID
	node   string
	claims bool // policies allocate resources to it
	known  bool // the Cluster had the pod when it was reserved
	end    func()
	bound  time.Time // when it was bound; zero: not yet
}

// shownTimeout is how long a bound pod counts on its node while no View shows it. After that, it is on another node.
const shownTimeout = 10 * time.Second

// Reserve implements fwk.ReservePlugin. From now on the pod counts on the node, with the annotations that it will probably get.
// Nothing is written: the framework may revert what it has reserved.
func (p *plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, name string) *fwk.Status {
	c, err := cycleOf(state)
	if err != nil {
		return nil // no policy concerns the pod
	}
	c.succeeds(1) // unless PreScore has: the framework does not score a single node
	node := c.view.Node(name)
	switch {
	case node == nil && c.engine.Reserves():
		return fwk.AsStatus(unknownNode(name)) // kube-scheduler retries the pod after its backoff
	case node == nil:
		return nil // no policy sees the pod there
	}
	planned, claims := binder.WithPlannedClaims(ctx, c.engine, c.view, c.pod, c.engine.CountNominated(c.view, nil, c.pod, node))
	if claims {
		if err := p.checkOrder(); err != nil {
			return fwk.AsStatus(err)
		}
	}
	p.Unreserve(ctx, state, pod, name)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reserved[pod.UID] = &reservation{
		uid: pod.UID, node: name, claims: claims, known: p.service.Cluster.PodByUID(pod.UID) != nil, end: p.inFlight.Begin(name, planned),
	}
	return nil
}

func unknownNode(name string) error { return fmt.Errorf("node %q is not known to Outboard yet", name) }

// Unreserve implements fwk.ReservePlugin. Bind has released the claims already, unless the outcome of the Binding is unknown.
func (p *plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.reserved[pod.UID]; r != nil {
		r.end()
		delete(p.reserved, pod.UID)
	}
}

// reservationOf returns the reservation of the pod, or nil.
func (p *plugin) reservationOf(uid types.UID) *reservation {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reserved[uid]
}

// Bind implements fwk.BindPlugin. It binds pods to which policies allocate resources, with their claims, and leaves the others to the
// next plugin. Without a reservation, policies may allocate resources to any pod that concerns them.
func (p *plugin) Bind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, name string) *fwk.Status {
	r := p.reservationOf(pod.UID)
	if r != nil && !r.claims {
		return fwk.NewStatus(fwk.Skip)
	}
	c, err := cycleOf(state)
	switch {
	case err != nil && r == nil: // no policy concerns the pod
		return fwk.NewStatus(fwk.Skip)
	case err != nil:
		return fwk.AsStatus(err)
	case !c.engine.Reserves():
		return fwk.NewStatus(fwk.Skip)
	}
	started := time.Now()
	if err := p.bind(ctx, c, name); err != nil {
		p.add(c.profile, decision.Bind, started, &decision.Record{Pod: podOf(pod), Bound: name}, err)
		return fwk.AsStatus(err)
	}
	p.add(c.profile, decision.Bind, started, &decision.Record{Pod: podOf(pod), Bound: name}, nil)
	return nil
}

func (p *plugin) bind(ctx context.Context, c *cycle, name string) error {
	cluster := p.service.Binding()
	b := binder.Binder{
		Engine: c.engine, Cluster: cluster, Ledgers: p.service.Ledgers(), InFlight: p.inFlight,
		Why: func(pod *corev1.Pod, node string) string { return p.service.Log.Why(pod, c.profile, node) },
	}
	pod := cluster.PodByUID(c.pod.UID) // its version may be newer
	if pod == nil {
		pod = c.pod
	}
	view := cluster.View()
	node := view.Node(name)
	if node == nil {
		return unknownNode(name)
	}
	return b.Bind(ctx, pod, binder.Target{View: view, Node: c.engine.CountNominated(view, nil, pod, node)})
}

// PostBind implements fwk.PostBindPlugin. The pod counts as being bound until a View shows it on its node.
func (p *plugin) PostBind(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.reserved[pod.UID]; r != nil {
		r.bound = time.Now()
	}
}

// endShown ends the reservations of pods that the View shows bound, and of bound pods that are gone.
func (p *plugin) endShown() {
	view := p.service.Cluster.View()
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, r := range p.reserved {
		if r.bound.IsZero() {
			continue
		}
		node := view.Node(r.node)
		gone := r.known && p.service.Cluster.PodByUID(uid) == nil
		if node == nil || gone || slices.ContainsFunc(node.Pods, func(pod *corev1.Pod) bool { return pod.UID == uid }) || time.Since(r.bound) > shownTimeout {
			r.end()
			delete(p.reserved, uid)
		}
	}
}
