package extender

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/snapshot"
)

// InFlight holds pods that no View shows yet: pods that are being bound, and pods for which others have just been
// evicted. kube-scheduler decides about other pods between filter and the end of bind; without InFlight a burst of pods
// would exceed limits. All Handlers of a process share one InFlight, including those that a reload creates, because a
// pod counts on its node whichever profile binds it. The methods of Handler use it concurrently.
type InFlight struct {
	admission chan struct{} // capacity 1; held while a pod is being admitted
	mu        sync.Mutex    // guards writing binding
	binding   atomic.Pointer[boundPods]
	latest    atomic.Pointer[inFlightView]
	preempted preempted
	earlier   earlierPods
}

// NewInFlight returns an InFlight without pods.
func NewInFlight() *InFlight { return &InFlight{admission: make(chan struct{}, 1)} }

// boundPods are pods that are being bound, by node. The map and its lists are immutable.
type boundPods map[string][]*corev1.Pod

// inFlightView is a View with the pods that are being bound.
type inFlightView struct {
	of    *snapshot.View
	pods  *boundPods
	nodes map[string]*snapshot.Node // those that differ from the View
	view  *snapshot.View
}

// now returns the pods that are being bound; nil if there are none. A pod is removed once the View has it, so callers
// must read the View after calling now.
func (f *InFlight) now() *boundPods { return f.binding.Load() }

// on returns the pods of the node.
func (p *boundPods) on(node string) []*corev1.Pod {
	if p == nil {
		return nil
	}
	return (*p)[node]
}

// includes reports whether the pod is being bound to the node.
func (p *boundPods) includes(uid types.UID, node string) bool {
	return slices.ContainsFunc(p.on(node), func(pod *corev1.Pod) bool { return pod.UID == uid })
}

// set replaces the pods that are being bound to a node. mu must be held.
func (f *InFlight) set(node string, pods []*corev1.Pod) {
	next := boundPods{}
	if now := f.now(); now != nil {
		next = maps.Clone(*now)
	}
	if next[node] = pods; len(pods) == 0 {
		delete(next, node)
	}
	if len(next) == 0 {
		f.binding.Store(nil)
		return
	}
	f.binding.Store(&next)
}

// begin counts the pod on the node until end is called.
func (f *InFlight) begin(node string, pod *corev1.Pod) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set(node, append(slices.Clone(f.now().on(node)), pod))
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		rest := slices.Clone(f.now().on(node))
		i := slices.Index(rest, pod)
		f.set(node, slices.Delete(rest, i, i+1))
	}
}

// complete returns the View with the pods on their nodes, except the pod of the request, which does not count against
// itself. It builds a node anew only if the node or its pods have changed, so that its Facts are kept.
func (f *InFlight) complete(view *snapshot.View, pods *boundPods, asking types.UID) *snapshot.View {
	if pods == nil {
		return view
	}
	last := f.latest.Load()
	if last == nil || last.of != view || last.pods != pods {
		last = last.next(view, pods)
		f.latest.Store(last)
	}
	for node, own := range *pods {
		if n := view.Node(node); n != nil && slices.ContainsFunc(own, func(pod *corev1.Pod) bool { return pod.UID == asking }) {
			return last.view.WithNodes(n.With(others(own, asking)...))
		}
	}
	return last.view
}

// next returns the View with the pods added. last may be nil.
func (last *inFlightView) next(view *snapshot.View, pods *boundPods) *inFlightView {
	next := &inFlightView{of: view, pods: pods, nodes: make(map[string]*snapshot.Node, len(*pods))}
	for name, own := range *pods {
		n := view.Node(name)
		if n == nil {
			continue
		}
		if last != nil && last.of.Node(name) == n && slices.Equal(last.pods.on(name), own) {
			next.nodes[name] = last.nodes[name]
		} else {
			next.nodes[name] = n.With(own...)
		}
	}
	next.view = view.WithNodes(slices.Collect(maps.Values(next.nodes))...)
	return next
}

func others(pods []*corev1.Pod, asking types.UID) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.UID == asking })
}

// admitted is a pod that is being bound.
type admitted struct {
	view *snapshot.View
	// node is the target with its nominated pods, so that the pod does not get what they need.
	node *snapshot.Node
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
	pods := f.now()
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
	all := f.complete(view, pods, pod.UID)
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
	planned := h.withPlannedClaims(ctx, all, pod, h.Engine.CountNominated(all, nominations, pod, all.Node(name)))
	return &admitted{view, h.Engine.CountNominated(all, nominations, pod, node), f.begin(name, planned)}, nil
}

// withPlannedClaims returns the pod with the annotations that it would get on the node now. If it cannot get what it
// needs, Reserve returns the error later.
func (h *Handler) withPlannedClaims(ctx context.Context, view *snapshot.View, pod *corev1.Pod, node *snapshot.Node) *corev1.Pod {
	reservation, err := h.Engine.Reserve(ctx, plan{view}, view, pod, node)
	if err != nil {
		return pod
	}
	return engine.WithAnnotations(pod, reservation.Annotations)
}

// plan implements engine.Ledgers with the ledgers of the View, and changes nothing.
type plan struct{ view *snapshot.View }

// Claim implements engine.Ledgers.
func (p plan) Claim(_ context.Context, key snapshot.LedgerKey, pod *corev1.Pod, _ string, choose engine.Choose) (snapshot.LedgerPod, error) {
	l := p.view.Ledger(key)
	if l == nil {
		l = &snapshot.Ledger{Resource: key.Resource, Node: key.Node}
	}
	if held := l.Pod(pod.UID); held != nil {
		if _, err := choose(l, held.At); err == nil {
			return *held, nil
		}
		l = l.Without(func(uid types.UID) bool { return uid == pod.UID })
	}
	claim, err := choose(l, time.Now())
	return snapshot.LedgerPod{Annotations: claim.Annotations}, err
}

// Release implements engine.Ledgers.
func (plan) Release(context.Context, snapshot.LedgerKey, snapshot.LedgerPod) error { return nil }

// Revoke implements engine.Ledgers.
func (plan) Revoke(context.Context, snapshot.LedgerKey, snapshot.LedgerPod) error { return nil }
