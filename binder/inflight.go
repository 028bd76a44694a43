package binder

import (
	"iter"
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
	latest  atomic.Pointer[completeView]
	earlier earlierPods
}

// Pods are pods that are being bound, by node. They are immutable.
type Pods struct {
	count  int
	byNode table[string, []*corev1.Pod]
	nodes  table[types.UID, []string] // of each pod
}

// completeView is a View with the pods that are being bound.
type completeView struct {
	of   *snapshot.View
	pods *Pods
	view *snapshot.View
}

// Now returns the pods that are being bound; nil if there are none. A pod is removed once the View has it, so callers
// must read the View after calling Now.
func (f *InFlight) Now() *Pods { return f.binding.Load() }

// On returns the pods of the node. Do not change the slice.
func (p *Pods) On(node string) []*corev1.Pod {
	if p == nil {
		return nil
	}
	return p.byNode.get(node)
}

// ChangedSince yields the nodes whose pods are not those of before, which may be nil. Its cost depends on what has changed in between,
// and hardly on the number of pods.
func (p *Pods) ChangedSince(before *Pods) iter.Seq[string] {
	none := new(Pods)
	if p == nil {
		p = none
	}
	if before == nil {
		before = none
	}
	return func(yield func(string) bool) {
		for i, list := range p.byNode.lists {
			former := before.byNode.lists[i]
			if list == former {
				continue
			}
			for e := list; e != nil; e = e.next {
				if !slices.Equal(e.value, before.On(e.key)) && !yield(e.key) {
					return
				}
			}
			for e := former; e != nil; e = e.next {
				if p.On(e.key) == nil && !yield(e.key) {
					return
				}
			}
		}
	}
}

// includes reports whether the pod is being bound to the node.
func (p *Pods) includes(uid types.UID, node string) bool {
	return p != nil && slices.Contains(p.nodes.get(uid), node)
}

// with returns the pods and this one on the node. p may be nil.
func (p *Pods) with(node string, pod *corev1.Pod) *Pods {
	next := new(Pods)
	if p != nil {
		*next = *p
	}
	next.count++
	next.byNode.set(node, append(slices.Clip(p.On(node)), pod))
	next.nodes.set(pod.UID, append(slices.Clip(next.nodes.get(pod.UID)), node))
	return next
}

// without returns the pods without this one on the node, where it is; nil if there are no others.
func (p *Pods) without(node string, pod *corev1.Pod) *Pods {
	if p.count == 1 {
		return nil
	}
	next := new(Pods)
	*next = *p
	next.count--
	setOrRemove(&next.byNode, node, withoutOne(p.On(node), pod))
	setOrRemove(&next.nodes, pod.UID, withoutOne(p.nodes.get(pod.UID), node))
	return next
}

// withoutOne returns a copy of the list without the first of the item's occurrences.
func withoutOne[T comparable](list []T, item T) []T {
	i := slices.Index(list, item)
	return slices.Delete(slices.Clone(list), i, i+1)
}

// setOrRemove sets the list of the key, or removes the key if the list is empty.
func setOrRemove[K comparable, V any](t *table[K, []V], key K, list []V) {
	if len(list) == 0 {
		t.remove(key)
		return
	}
	t.set(key, list)
}

// Begin counts the pod on the node until end is called.
func (f *InFlight) Begin(node string, pod *corev1.Pod) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.binding.Store(f.Now().with(node, pod))
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		next := f.Now().without(node, pod)
		f.binding.Store(next)
		if next == nil {
			f.latest.Store(nil) // so that its View can be garbage-collected
		}
	}
}

// Latest returns the latest View of the cluster with the pods on their nodes, except the pod that asks: see Complete. It is what policies
// evaluate, and what people and tools are shown.
func (f *InFlight) Latest(cluster interface{ View() *snapshot.View }, asking types.UID) *snapshot.View {
	pods := f.Now() // before the View is read
	return f.Complete(cluster.View(), pods, asking)
}

// Complete returns the View with the pods on their nodes, except the pod of the request, which does not count against
// itself. It builds a node anew only if the node or its pods have changed since the last call, so that its Facts are kept. Its cost
// depends on the number of these nodes, and hardly on the number of pods.
func (f *InFlight) Complete(view *snapshot.View, pods *Pods, asking types.UID) *snapshot.View {
	if pods == nil {
		return view
	}
	last := f.latest.Load()
	if last == nil || last.of != view || last.pods != pods {
		last = last.next(view, pods)
		f.latest.Store(last)
	}
	complete := last.view
	for _, node := range pods.nodes.get(asking) {
		if n := view.Node(node); n != nil {
			complete = complete.WithNodes(n.With(others(pods.On(node), asking)...))
		}
	}
	return complete
}

// next returns the View with the pods added. last may be nil.
func (last *completeView) next(view *snapshot.View, pods *Pods) *completeView {
	next := &completeView{of: view, pods: pods}
	if last == nil || last.of.NodeIndex() != view.NodeIndex() {
		next.view = view.WithNodes(last.allNodes(view, pods)...)
		return next
	}
	var nodes []*snapshot.Node
	for n := range view.ChangedSince(last.of) {
		nodes = append(nodes, n.With(pods.On(n.Name)...))
	}
	for name := range pods.ChangedSince(last.pods) {
		if n := view.Node(name); n != nil && n == last.of.Node(name) {
			nodes = append(nodes, n.With(pods.On(name)...))
		}
	}
	next.view = view.WithNodesOf(last.view, nodes...)
	return next
}

// allNodes returns the nodes of all pods, with their pods.
func (last *completeView) allNodes(view *snapshot.View, pods *Pods) (nodes []*snapshot.Node) {
	for name := range pods.ChangedSince(nil) {
		switch n := view.Node(name); {
		case n == nil: // no View shows it
		case last != nil && last.of.Node(name) == n && slices.Equal(last.pods.On(name), pods.On(name)):
			nodes = append(nodes, last.view.Node(name))
		default:
			nodes = append(nodes, n.With(pods.On(name)...))
		}
	}
	return nodes
}

func others(pods []*corev1.Pod, asking types.UID) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.UID == asking })
}
