package schedplugin

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/binder"
	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/snapshot"
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

const (
	// shownTimeout is how long a bound pod counts on its node while no View shows it. After that, it is on another node.
	shownTimeout = 10 * time.Second
	// checkedBound is how many bound pods an attempt checks if no View has been published since the last attempt.
	checkedBound = 8
)

// reservations are the pods that the plugins are binding. They may be used concurrently. The zero value has none.
type reservations struct {
	mu      sync.Mutex
	byUID   map[types.UID]*reservation
	bound   []*reservation // no View shows them yet; the next ones to be checked first
	checked *snapshot.View // of the last attempt
}

// add adds a reservation, and ends a former one of the pod.
func (rs *reservations) add(r *reservation) {
	rs.end(r.uid)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.byUID == nil {
		rs.byUID = map[types.UID]*reservation{}
	}
	rs.byUID[r.uid] = r
}

// end ends the reservation of the pod, if there is one.
func (rs *reservations) end(uid types.UID) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.byUID[uid]; r != nil {
		r.end()
		delete(rs.byUID, uid)
	}
}

// of returns the reservation of the pod, or nil.
func (rs *reservations) of(uid types.UID) *reservation {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.byUID[uid]
}

// setBound records that the pod is bound.
func (rs *reservations) setBound(uid types.UID) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.byUID[uid]; r != nil {
		r.bound = time.Now()
		rs.bound = append(rs.bound, r)
	}
}

// endShown ends the reservations of pods that the View shows bound, and of bound pods that are gone. It checks all bound pods for a new
// View, and some of them otherwise, because pods may be bound, or gone, after a View is published.
func (rs *reservations) endShown(view *snapshot.View, known func(types.UID) *corev1.Pod) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	count := len(rs.bound)
	if view == rs.checked {
		count = min(count, checkedBound)
	}
	rs.checked = view
	checked := rs.bound[:count]
	rs.bound = rs.bound[count:]
	for _, r := range checked {
		switch {
		case rs.byUID[r.uid] != r: // ended already
		case r.isOver(view, known):
			r.end()
			delete(rs.byUID, r.uid)
		default:
			rs.bound = append(rs.bound, r)
		}
	}
}

// isOver reports whether the bound pod need not count on its node any more.
func (r *reservation) isOver(view *snapshot.View, known func(types.UID) *corev1.Pod) bool {
	node := view.Node(r.node)
	return node == nil || node.Has(r.uid) || r.known && known(r.uid) == nil || time.Since(r.bound) > shownTimeout
}

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
	p.reserved.add(&reservation{
		uid: pod.UID, node: name, claims: claims, known: p.service.Cluster.PodByUID(pod.UID) != nil, end: p.inFlight.Begin(name, planned),
	})
	return nil
}

func unknownNode(name string) error { return fmt.Errorf("node %q is not known to Outboard yet", name) }

// Unreserve implements fwk.ReservePlugin. Bind has released the claims already, unless the outcome of the Binding is unknown.
func (p *plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	p.reserved.end(pod.UID)
}

// Bind implements fwk.BindPlugin. It binds pods to which policies allocate resources, with their claims, and leaves the others to the
// next plugin. Without a reservation, policies may allocate resources to any pod that concerns them.
func (p *plugin) Bind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, name string) *fwk.Status {
	r := p.reserved.of(pod.UID)
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
		Engine: c.engine, Cluster: cluster, Ledgers: p.service.Ledgers(), InFlight: &p.inFlight,
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
	p.reserved.setBound(pod.UID)
}
