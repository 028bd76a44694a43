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

// coming are the pods that are being bound at this moment, by node. Between filter and
// the end of bind kube-scheduler decides about other pods, of which the view cannot know
// yet: without them a burst would overrun any limit, and all go to one node.
type coming struct {
	mu     sync.Mutex                               // to write
	byNode atomic.Pointer[map[string][]*corev1.Pod] // nil: none. Neither the map nor a list in it is ever written to
}

// now returns the pods by node.
func (c *coming) now() map[string][]*corev1.Pod {
	if byNode := c.byNode.Load(); byNode != nil {
		return *byNode
	}
	return nil
}

// includes says whether the pod is being bound to the node.
func (c *coming) includes(uid types.UID, node string) bool {
	return slices.ContainsFunc(c.now()[node], func(p *corev1.Pod) bool { return p.UID == uid })
}

// set replaces the pods that come to a node. mu is held.
func (c *coming) set(node string, pods []*corev1.Pod) {
	byNode := maps.Clone(c.now())
	if byNode == nil {
		byNode = map[string][]*corev1.Pod{}
	}
	if byNode[node] = pods; len(pods) == 0 {
		delete(byNode, node)
	}
	c.byNode.Store(&byNode)
}

// withComing replaces, among the nodes asked, those of the view to which pods are coming
// by such that have them already. coming was read before the view was: a pod leaves it
// when the view has it. The pod asked about is not in its own way.
func (c *call) withComing(view *snapshot.View, coming map[string][]*corev1.Pod, asking types.UID) {
	if len(coming) == 0 {
		return
	}
	c.nextMark()
	with := make(map[int32]*snapshot.Node, len(coming))
	for name, pods := range coming {
		if n := view.Node(name); n != nil {
			with[int32(n.Row())], c.seen[n.Row()] = n.With(others(pods, asking)...), c.mark
		}
	}
	for i, row := range c.rows {
		if row >= 0 && c.seen[row] == c.mark {
			c.asked[i] = with[row]
		}
	}
}

func others(pods []*corev1.Pod, asking types.UID) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.UID == asking })
}

// enter asks the policies once more whether the pod fits on the node, now with
// every pod that is on its way there, and puts the pod among those, with the annotations
// that it will probably get: until it is claimed, they say which units of the node it
// takes. leave takes the pod off again, when the view holds it or it is not bound. As in
// withComing, the view is read last: who has left meanwhile is in it. The node returned has the pods that are nominated to
// it: what the pod is given must not be theirs.
func (h *Handler) enter(ctx context.Context, c *call, pod *corev1.Pod, name string) (view *snapshot.View, node *snapshot.Node, leave func(), err error) {
	h.coming.mu.Lock()
	defer h.coming.mu.Unlock()
	here := h.coming.now()[name]
	if view, node, err = h.target(c, name); err != nil {
		return nil, nil, nil, err
	}
	crowded := node.With(others(here, pod.UID)...)
	nominations := h.preempted.now(view, c.started)
	record := c.record
	err = h.Engine.Filter(ctx, engine.Request{Pod: pod, View: view, Nodes: []*snapshot.Node{crowded}, Nominations: nominations}, &c.result)
	record.Policies, record.Rejections = c.result.Record.Policies, c.result.Record.Rejections
	if err != nil {
		return nil, nil, nil, err
	}
	if len(c.result.Rejected) > 0 {
		return nil, nil, nil, fmt.Errorf("node %q does not fit any more: %s", name, c.result.Rejected[0].Reason.Text)
	}
	node = h.Engine.CountNominated(view, nominations, pod, node)
	pod = h.planned(ctx, view, pod, h.Engine.CountNominated(view, nominations, pod, crowded))
	h.coming.set(name, append(slices.Clone(here), pod))
	return view, node, func() {
		h.coming.mu.Lock()
		defer h.coming.mu.Unlock()
		rest := slices.Clone(h.coming.now()[name])
		i := slices.Index(rest, pod)
		h.coming.set(name, slices.Delete(rest, i, i+1))
	}, nil
}

// planned returns the pod with the annotations of what it would be given on the node, if
// nobody else comes first. What it cannot be given is for Reserve to tell.
func (h *Handler) planned(ctx context.Context, view *snapshot.View, pod *corev1.Pod, node *snapshot.Node) *corev1.Pod {
	reservation, err := h.Engine.Reserve(ctx, plan{view}, view, pod, node)
	if err != nil {
		return pod
	}
	return engine.WithAnnotations(pod, reservation.Annotations)
}

// plan is ledgers of which nothing is kept: those of the view.
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
