package engine

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"outboard.dev/outboard/snapshot"
)

// nominations are the nodes of one View that have nominated pods.
type nominations struct {
	engine *Engine
	view   *snapshot.View
	byRow  []*nominatedNode
}

// nominatedNode is a node with the pods nominated to it. It depends on the node, the pods and the policies, and is
// reused while they stay the same.
type nominatedNode struct {
	node *snapshot.Node
	// pods are the most important ones first; of the same priority, first those that are nominated to no other node.
	pods []*snapshot.Nomination
	// planned are the pods with the annotations that they will probably get.
	planned []*corev1.Pod
	// with is the node with all of them.
	with *snapshot.Node
}

// nominations returns the nodes of the view that have nominated pods, or nil if there are none. It keeps those of the latest View for later
// calls: a View that was changed for an evaluation has the Generation of the original, and is not kept.
func (e *Engine) nominations(view *snapshot.View) *nominations {
	last := e.nominated.Load()
	if last != nil && last.view == view {
		return last
	}
	if len(view.Nominated()) == 0 {
		return nil
	}
	byNode := map[*snapshot.Node][]*snapshot.Nomination{}
	for _, n := range view.Nominated() {
		for _, c := range n.Nodes {
			if node := view.Node(c.Name); node != nil {
				byNode[node] = append(byNode[node], n)
			}
		}
	}
	next := &nominations{engine: e, view: view, byRow: make([]*nominatedNode, view.Rows())}
	for node, pods := range byNode {
		slices.SortStableFunc(pods, func(x, y *snapshot.Nomination) int {
			return cmp.Or(cmp.Compare(corev1helpers.PodPriority(y.Pod), corev1helpers.PodPriority(x.Pod)), cmp.Compare(min(len(x.Nodes), 2), min(len(y.Nodes), 2)))
		})
		row := node.Row()
		if last != nil && row < len(last.byRow) && last.byRow[row].is(node, pods) {
			next.byRow[row] = last.byRow[row]
			continue
		}
		next.byRow[row] = e.nominatedTo(node, pods)
	}
	if last == nil || last.view.Generation() < view.Generation() {
		e.nominated.Store(next)
	}
	return next
}

// nominatedTo plans what the pods will get on the node.
func (e *Engine) nominatedTo(node *snapshot.Node, pods []*snapshot.Nomination) *nominatedNode {
	planned := e.plan(node, pods)
	return &nominatedNode{node: node, pods: pods, planned: planned, with: node.With(planned...)}
}

// is reports whether n was made from the node and the pods. n may be nil.
func (n *nominatedNode) is(node *snapshot.Node, pods []*snapshot.Nomination) bool {
	return n != nil && n.node == node && slices.Equal(n.pods, pods)
}

// plan returns the pods with the annotations that each will probably get on the node: those that it would get if the
// pods evicted for it, and all pods with a deletionTimestamp, were gone already. If a pod would get nothing then,
// because the evicted pods are not known here, plan assumes that all less important pods are gone.
func (e *Engine) plan(node *snapshot.Node, pods []*snapshot.Nomination) []*corev1.Pod {
	planned := make([]*corev1.Pod, 0, len(pods))
	for _, n := range pods {
		to, _ := n.Node(node.Name)
		rest := node.Without(func(pod *corev1.Pod) bool {
			return pod.DeletionTimestamp != nil || slices.Contains(to.Victims, pod.UID)
		})
		pod, fits := e.plannedOn(rest.With(planned...), n.Pod)
		if !fits {
			rest = rest.Without(func(pod *corev1.Pod) bool { return corev1helpers.PodPriority(pod) < corev1helpers.PodPriority(n.Pod) })
			pod, _ = e.plannedOn(rest.With(planned...), n.Pod)
		}
		planned = append(planned, pod)
	}
	return planned
}

// counting returns the node with the nominated pods that count for the pod: those of the same or higher importance, as
// in kube-scheduler's own filters. n may be a changed copy of the node of the View, with more or fewer pods: the nominated
// pods may get something else there. If certain is true, pods that may be nominated to another node do not count.
//
// They do not count either for a pod that is nominated to this node, because kube-scheduler has chosen the node beside them: otherwise two pods
// would wait for each other. Of several pods that are nominated to this node alone, each counts what it would get after those before it.
func (ns *nominations) counting(n *snapshot.Node, pod *corev1.Pod, certain bool) *snapshot.Node {
	if ns == nil || n == nil || uint(n.Row()) >= uint(len(ns.byRow)) || ns.byRow[n.Row()] == nil {
		return n
	}
	nominated := ns.byRow[n.Row()]
	is := func(n *snapshot.Nomination) bool { return n.Pod.UID == pod.UID }
	own := slices.IndexFunc(nominated.pods, is)
	chosen := n.Name == pod.Status.NominatedNodeName
	if own >= 0 {
		o := nominated.pods[own]
		chosen = chosen || n.Name == o.Pod.Status.NominatedNodeName || len(o.Nodes) == 1
	}
	counts := func(n *snapshot.Nomination) bool {
		return corev1helpers.PodPriority(n.Pod) >= corev1helpers.PodPriority(pod) && !((certain || chosen) && len(n.Nodes) > 1)
	}
	first := 0
	for first < len(nominated.pods) && counts(nominated.pods[first]) {
		first++
	}
	switch others := nominated.pods[first:]; {
	case own >= 0, n != nominated.node, slices.ContainsFunc(others, counts):
		pods := slices.DeleteFunc(slices.Clone(nominated.pods), func(n *snapshot.Nomination) bool {
			if is(n) {
				return !chosen
			}
			return !counts(n)
		})
		planned := ns.engine.plan(n, pods)
		return n.With(slices.DeleteFunc(planned, func(p *corev1.Pod) bool { return p.UID == pod.UID })...)
	case len(others) > 0:
		return n.With(nominated.planned[:first]...)
	}
	return nominated.with
}

// beside returns the nodes, each with the nominated pods that count for the pod. It returns the slice itself if there are none, and scratch
// memory otherwise.
func (ns *nominations) beside(nodes []*snapshot.Node, pod *corev1.Pod, s *scratch) []*snapshot.Node {
	if ns == nil {
		return nodes
	}
	s.nodes = append(s.nodes[:0], nodes...)
	for i, n := range s.nodes {
		s.nodes[i] = ns.counting(n, pod, false)
	}
	return s.nodes
}

// CountNominated returns the node with the nominated pods that count for the pod, so that the pod is not allocated what
// they will need.
func (e *Engine) CountNominated(view *snapshot.View, pod *corev1.Pod, node *snapshot.Node) *snapshot.Node {
	return e.nominations(view).counting(node, pod, false)
}

// Likeliest returns the candidates from which kube-scheduler chooses if no other extender drops any: by its own
// criteria (pickOneNodeForPreemption) they are equally good, and better than the others. It leaves out nodes that the View does not have.
func Likeliest(candidates []Candidate) []Candidate {
	var best []Candidate
	var least cost
	for _, c := range candidates {
		if c.Node == nil {
			continue // nothing is known about its victims
		}
		switch cost := costOf(c); {
		case len(best) == 0, cost.compare(least) < 0:
			best, least = []Candidate{c}, cost
		case cost.compare(least) == 0:
			best = append(best, c)
		}
	}
	return best
}

// cost is the order in which kube-scheduler compares candidates, field by field; lower is better.
type cost struct {
	pdbViolations, highest, sum, victims int64
	started                              time.Time // the earliest start of the most important victims; later is better
}

func costOf(c Candidate) cost {
	all := cost{pdbViolations: c.PDBViolations, highest: math.MinInt64, victims: int64(len(c.Victims))}
	for _, uid := range c.Victims {
		i := slices.IndexFunc(c.Node.Pods, func(pod *corev1.Pod) bool { return pod.UID == uid })
		if i < 0 {
			continue // an unknown pod
		}
		pod := c.Node.Pods[i]
		value := int64(corev1helpers.PodPriority(pod))
		all.sum += value + math.MaxInt32 + 1 // so that more victims always cost more
		switch {
		case value > all.highest:
			all.highest, all.started = value, StartOf(pod)
		case value == all.highest && StartOf(pod).Before(all.started):
			all.started = StartOf(pod)
		}
	}
	return all
}

func (c cost) compare(other cost) int {
	return cmp.Or(
		cmp.Compare(c.pdbViolations, other.pdbViolations), cmp.Compare(c.highest, other.highest),
		cmp.Compare(c.sum, other.sum), cmp.Compare(c.victims, other.victims), other.started.Compare(c.started),
	)
}

// PlannedNominated returns the pod that the View shows nominated to the node, with the annotations of what it will probably get there, or
// nil if the View does not nominate the pod with the UID to the node.
func (e *Engine) PlannedNominated(view *snapshot.View, node *snapshot.Node, uid types.UID) *corev1.Pod {
	ns := e.nominations(view)
	if ns == nil || uint(node.Row()) >= uint(len(ns.byRow)) || ns.byRow[node.Row()] == nil {
		return nil
	}
	planned := ns.byRow[node.Row()].planned
	if i := slices.IndexFunc(planned, func(p *corev1.Pod) bool { return p.UID == uid }); i >= 0 {
		return planned[i]
	}
	return nil
}
