package engine

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"outboard.dev/outboard/snapshot"
)

// nominations are the nodes of one View that have nominated pods. See [snapshot.View.Nominated] for
// what is nominated, and the package documentation for which pods count for whom.
//
// What always holds:
//   - What a nominated pod will get is planned from the node and its nominated pods alone. So it
//     stays the same from View to View while these do, and other replicas plan the same.
//   - Nominated pods are planned in the order of their importance, each in what those before it
//     leave, and count for each other in this order, too. So two never wait for each other.
type nominations struct {
	engine *Engine
	view   *snapshot.View
	byRow  []*nominatedNode
}

// nominatedNode is a node with the pods nominated to it. It is immutable.
type nominatedNode struct {
	node *snapshot.Node
	pods []*corev1.Pod // the most important one first
	// planned are the pods with the annotations that they will probably get.
	planned []*corev1.Pod
	// with is the node with all of them.
	with *snapshot.Node
}

// CountNominated returns the node with the nominated pods that count for the pod, so that the pod
// is not allocated what they will need.
func (e *Engine) CountNominated(view *snapshot.View, pod *corev1.Pod, node *snapshot.Node) *snapshot.Node {
	return e.nominations(view).counting(node, pod)
}

// PlannedNominated returns the pod that the View shows nominated to the node, with the annotations
// of what it will probably get there, or nil if the View does not nominate the pod with the UID to
// the node.
func (e *Engine) PlannedNominated(view *snapshot.View, node *snapshot.Node, uid types.UID) *corev1.Pod {
	if nominated := e.nominations(view).on(node); nominated != nil {
		for _, pod := range nominated.planned {
			if pod.UID == uid {
				return pod
			}
		}
	}
	return nil
}

// beside returns the nodes, each with the nominated pods that count for the pod. It returns the
// slice itself if there are none, and scratch memory otherwise.
func (ns *nominations) beside(nodes []*snapshot.Node, pod *corev1.Pod, s *scratch) []*snapshot.Node {
	if ns == nil {
		return nodes
	}
	s.nodes = append(s.nodes[:0], nodes...)
	for i, n := range s.nodes {
		s.nodes[i] = ns.counting(n, pod)
	}
	return s.nodes
}

// nominations returns the nodes of the view that have nominated pods, or nil if there are none. It
// keeps those of the latest View for later calls, because to plan 100 pods takes half as long as a
// call: a View that was changed for an evaluation has the Generation of the original, and is not
// kept.
func (e *Engine) nominations(view *snapshot.View) *nominations {
	last := e.nominated.Load()
	if last != nil && last.view == view {
		return last
	}
	if len(view.Nominated()) == 0 {
		return nil
	}
	byNode := map[*snapshot.Node][]*corev1.Pod{}
	for _, pod := range view.Nominated() {
		if node := view.Node(pod.Status.NominatedNodeName); node != nil {
			byNode[node] = append(byNode[node], pod)
		}
	}
	next := &nominations{engine: e, view: view, byRow: make([]*nominatedNode, view.Rows())}
	for node, pods := range byNode {
		if same := last.on(node); same != nil && same.node == node && slices.Equal(same.pods, pods) {
			next.byRow[node.Row()] = same
			continue
		}
		planned := e.plan(node, pods)
		next.byRow[node.Row()] = &nominatedNode{node, pods, planned, node.With(planned...)}
	}
	if last == nil || last.view.Generation() < view.Generation() {
		e.nominated.Store(next)
	}
	return next
}

// on returns the pods nominated to the node; nil if there are none.
func (ns *nominations) on(n *snapshot.Node) *nominatedNode {
	if ns == nil || n == nil || uint(n.Row()) >= uint(len(ns.byRow)) {
		return nil
	}
	return ns.byRow[n.Row()]
}

// counting returns the node with the nominated pods that count for the pod: those that are at least
// as important, as in kube-scheduler's own filters. For a pod that is nominated to the node, too,
// only those before it count. n may be a changed copy of the node of the View, on which the
// nominated pods may get something else.
func (ns *nominations) counting(n *snapshot.Node, pod *corev1.Pod) *snapshot.Node {
	nominated := ns.on(n)
	if nominated == nil {
		return n
	}
	before := 0
	for _, other := range nominated.pods {
		if other.UID == pod.UID || corev1helpers.PodPriority(other) < corev1helpers.PodPriority(pod) {
			break
		}
		before++
	}
	switch {
	case n != nominated.node:
		return n.With(ns.engine.plan(n, nominated.pods[:before])...)
	case before == len(nominated.pods):
		return nominated.with
	}
	return n.With(nominated.planned[:before]...)
}

// plan returns the pods, which are nominated to the node, with the annotations that each will
// probably get: those that it would get once the pods with a deletionTimestamp are gone. If it
// would get nothing then, because a pod does not have its deletionTimestamp yet, plan assumes that
// all less important pods are gone.
func (e *Engine) plan(node *snapshot.Node, pods []*corev1.Pod) []*corev1.Pod {
	planned := make([]*corev1.Pod, 0, len(pods))
	for _, nominated := range pods {
		pod, fits := e.plannedOn(afterEvictions(node, nil).With(planned...), nominated)
		if !fits {
			lower := func(pod *corev1.Pod) bool {
				return corev1helpers.PodPriority(pod) < corev1helpers.PodPriority(nominated)
			}
			pod, _ = e.plannedOn(afterEvictions(node, lower).With(planned...), nominated)
		}
		planned = append(planned, pod)
	}
	return planned
}

// afterEvictions returns the node once the evicted pods are gone, and those with a
// deletionTimestamp. evicted may be nil.
func afterEvictions(node *snapshot.Node, evicted func(*corev1.Pod) bool) *snapshot.Node {
	return node.Without(func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || evicted != nil && evicted(pod)
	})
}
