package binder

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// InFlight has the pods that are being bound and that no View shows yet. Meanwhile kube-scheduler places other pods; without
// InFlight a burst of pods would exceed limits. All Binders of a process share one InFlight, because a pod counts on its node
// whichever profile binds it. The zero value has no pods. Its methods may be called concurrently.
type InFlight struct {
	mu      sync.Mutex // guards writing binding
	binding atomic.Pointer[Pods]
	latest  atomic.Pointer[inFlightView]
	earlier earlierPods
}

// Pods are pods that are being bound, by node. The map and its lists are immutable.
type Pods map[string][]*corev1.Pod

// inFlightView is a View with the pods that are being bound.
type inFlightView struct {
	of    *snapshot.View
	pods  *Pods
	nodes map[string]*snapshot.Node // those that differ from the View
	view  *snapshot.View
}

// Now returns the pods that are being bound; nil if there are none. A pod is removed once the View has it, so callers
// must read the View after calling Now.
func (f *InFlight) Now() *Pods { return f.binding.Load() }

// On returns the pods of the node.
func (p *Pods) On(node string) []*corev1.Pod {
	if p == nil {
		return nil
	}
	return (*p)[node]
}

// includes reports whether the pod is being bound to the node.
func (p *Pods) includes(uid types.UID, node string) bool {
	return slices.ContainsFunc(p.On(node), func(pod *corev1.Pod) bool { return pod.UID == uid })
}

// set replaces the pods that are being bound to a node. mu must be held.
func (f *InFlight) set(node string, pods []*corev1.Pod) {
	next := Pods{}
	if now := f.Now(); now != nil {
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

// Begin counts the pod on the node until end is called.
func (f *InFlight) Begin(node string, pod *corev1.Pod) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set(node, append(slices.Clone(f.Now().On(node)), pod))
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		rest := slices.Clone(f.Now().On(node))
		i := slices.Index(rest, pod)
		f.set(node, slices.Delete(rest, i, i+1))
	}
}

// Complete returns the View with the pods on their nodes, except the pod of the request, which does not count against
// itself. It builds a node anew only if the node or its pods have changed, so that its Facts are kept.
func (f *InFlight) Complete(view *snapshot.View, pods *Pods, asking types.UID) *snapshot.View {
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
func (last *inFlightView) next(view *snapshot.View, pods *Pods) *inFlightView {
	next := &inFlightView{of: view, pods: pods, nodes: make(map[string]*snapshot.Node, len(*pods))}
	for name, own := range *pods {
		n := view.Node(name)
		if n == nil {
			continue
		}
		if last != nil && last.of.Node(name) == n && slices.Equal(last.pods.On(name), own) {
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
