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

// InFlight is what is known of pods that no View shows yet: those that are being bound, and those for which others have just
// been evicted. Between filter and the end of bind kube-scheduler decides about other pods: without these a burst would exceed
// any limit. All Handlers of a process share one InFlight, also those that a reload makes, because a pod counts on its node
// whichever profile binds it. The methods of Handler may use it concurrently.
type InFlight struct {
	admission chan struct{} // capacity 1: held while a pod is admitted
	mu        sync.Mutex    // to write binding
	binding   atomic.Pointer[boundPods]
	latest    atomic.Pointer[inFlightView]
	preempted preempted
	earlier   earlierPods
}

// NewInFlight returns an InFlight without pods.
func NewInFlight() *InFlight { return &InFlight{admission: make(chan struct{}, 1)} }

// boundPods are pods that are being bound, by node. Neither the map nor a list in it is ever written to.
type boundPods map[string][]*corev1.Pod

// inFlightView is a View with the pods that are being bound.
type inFlightView struct {
	of    *snapshot.View
	pods  *boundPods
	nodes map[string]*snapshot.Node // those that differ
	view  *snapshot.View
}

// now returns the pods that are being bound; nil is none. A pod leaves when the View has it, so the View to be completed by
// them is read afterwards.
func (f *InFlight) now() *boundPods { return f.binding.Load() }

// on returns the node's pods.
func (p *boundPods) on(node string) []*corev1.Pod {
	if p == nil {
		return nil
	}
	return (*p)[node]
}

// includes says whether the pod is being bound to the node.
func (p *boundPods) includes(uid types.UID, node string) bool {
	return slices.ContainsFunc(p.on(node), func(pod *corev1.Pod) bool { return pod.UID == uid })
}

// set replaces the pods that are being bound to a node. mu is held.
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

// begin counts the pod on the node, until end is called.
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

// complete returns the View with the pods on their nodes, but for the pod that is asked about: it is not counted against
// itself. A node is made anew only when it or its pods have changed, so that its Facts stay.
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

// next returns the View with the pods. last may be nil.
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
	// node is the target, with the pods that are nominated to it: what the pod is given must not be theirs.
	node *snapshot.Node
	// leave must be called when the View holds the pod, or it is not bound.
	leave func()
}

// admit asks the policies once more whether the pod fits on the node, now with all pods that are being bound, and makes it one
// of these, with the annotations that it will probably get: until it is claimed, they say which units of the node it takes.
// One pod at a time is admitted, so that no two are admitted to what is there for one.
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

// withPlannedClaims returns the pod with the annotations of what it would be given on the node if nobody else comes first. What
// it cannot be given, Reserve says.
func (h *Handler) withPlannedClaims(ctx context.Context, view *snapshot.View, pod *corev1.Pod, node *snapshot.Node) *corev1.Pod {
	reservation, err := h.Engine.Reserve(ctx, plan{view}, view, pod, node)
	if err != nil {
		return pod
	}
	return engine.WithAnnotations(pod, reservation.Annotations)
}

// plan is the ledgers of the View. Nothing is written to them.
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
