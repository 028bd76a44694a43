package engine

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Nomination is a pod that is to run on a node from which other pods are evicted for it.
type Nomination struct {
	// Pod is not on a node.
	Pod  *corev1.Pod
	Node string
	// Victims are the pods evicted for it.
	Victims []types.UID
	// Uncertain says that kube-scheduler may have chosen another node.
	Uncertain bool
}

// Nominations are what is known of nominations beside what the View says: usually that a preempt call was answered a
// moment ago. They never change. Nil is none.
type Nominations struct{ byNode map[string][]Nomination }

// NewNominations returns Nominations, or nil if there are none.
func NewNominations(all []Nomination) *Nominations {
	if len(all) == 0 {
		return nil
	}
	byNode := map[string][]Nomination{}
	for _, n := range all {
		byNode[n.Node] = append(byNode[n.Node], n)
	}
	return &Nominations{byNode}
}

// of returns the nominations to the node.
func (n *Nominations) of(node string) []Nomination {
	if n == nil {
		return nil
	}
	return n.byNode[node]
}

// nominations are the nodes of one View to which pods are nominated.
type nominations struct {
	view  *snapshot.View
	more  *Nominations
	byRow []*nominatedNode
}

// nominatedNode is a node with the pods that are nominated to it. It follows from the node, the pods and the policies, and
// is kept while they are the same.
type nominatedNode struct {
	node *snapshot.Node
	pods []Nomination
	// planned are the pods, with the annotations of what they will probably be given.
	planned []*corev1.Pod
	// with is the node with all of them.
	with *snapshot.Node
}

// nominations returns what is nominated to the nodes of the view, or nil if nothing is.
func (e *Engine) nominations(view *snapshot.View, more *Nominations) *nominations {
	last := e.nominated.Load()
	if last != nil && last.view == view && last.more == more {
		return last
	}
	if len(view.Nominated()) == 0 && more == nil {
		return nil
	}
	names := map[string]struct{}{}
	for name := range view.Nominated() {
		names[name] = struct{}{}
	}
	if more != nil {
		for name := range more.byNode {
			names[name] = struct{}{}
		}
	}
	next := &nominations{view: view, more: more, byRow: make([]*nominatedNode, view.Rows())}
	for name := range names {
		node := view.Node(name)
		if node == nil {
			continue
		}
		row, pods := node.Row(), merge(view.Nominated()[name], more.of(name), name)
		if last != nil && row < len(last.byRow) && last.byRow[row].is(node, pods) {
			next.byRow[row] = last.byRow[row]
			continue
		}
		planned := e.plan(node, pods)
		next.byRow[row] = &nominatedNode{node: node, pods: pods, planned: planned, with: node.With(planned...)}
	}
	e.nominated.Store(next)
	return next
}

// merge returns the nominations of the view with what else is known of them, and those that only more has, the most
// important first.
func merge(pods []*corev1.Pod, more []Nomination, node string) []Nomination {
	all := make([]Nomination, 0, len(pods)+len(more))
	for _, pod := range pods {
		all = append(all, Nomination{Pod: pod, Node: node})
	}
	for _, m := range more {
		if i := slices.IndexFunc(all, func(n Nomination) bool { return n.Pod.UID == m.Pod.UID }); i >= 0 {
			all[i].Victims = m.Victims
		} else {
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b Nomination) int { return snapshot.CompareNominated(a.Pod, b.Pod) })
	return all
}

// is says whether n was made of the node and the pods. n may be nil.
func (n *nominatedNode) is(node *snapshot.Node, pods []Nomination) bool {
	return n != nil && n.node == node && slices.EqualFunc(n.pods, pods, func(a, b Nomination) bool {
		return a.Pod == b.Pod && a.Uncertain == b.Uncertain && slices.Equal(a.Victims, b.Victims)
	})
}

// plan returns the pods with the annotations of what each will probably be given on the node: what it would be given if the
// pods evicted for it, and all that are being deleted, were gone already. A pod that would not get anything then, because it
// is not known here which pods are evicted, is planned as if all pods less important than it were.
func (e *Engine) plan(node *snapshot.Node, pods []Nomination) []*corev1.Pod {
	planned := make([]*corev1.Pod, 0, len(pods))
	for _, n := range pods {
		rest := node.Without(func(pod *corev1.Pod) bool {
			return pod.DeletionTimestamp != nil || slices.Contains(n.Victims, pod.UID)
		})
		annotations, ok := e.wouldGet(n.Pod, rest.With(planned...))
		if !ok {
			rest = rest.Without(func(pod *corev1.Pod) bool { return snapshot.Priority(pod) < snapshot.Priority(n.Pod) })
			annotations, _ = e.wouldGet(n.Pod, rest.With(planned...))
		}
		planned = append(planned, WithAnnotations(n.Pod, annotations))
	}
	return planned
}

// WithAnnotations returns the pod as it would be with the annotations, too. The pod is not changed.
func WithAnnotations(pod *corev1.Pod, annotations map[string]string) *corev1.Pod {
	if len(annotations) == 0 {
		return pod
	}
	with := *pod // shallow: its annotations are replaced, not written to
	with.Annotations = maps.Clone(pod.Annotations)
	if with.Annotations == nil {
		with.Annotations = map[string]string{}
	}
	maps.Copy(with.Annotations, annotations)
	return &with
}

// wouldGet returns the annotations of what the policies would give to the pod of the node's own ledgers. ok is false if one
// of them has not enough. It follows from the pod and the node alone: not from the View, which changes more often.
func (e *Engine) wouldGet(pod *corev1.Pod, node *snapshot.Node) (annotations map[string]string, ok bool) {
	annotations, ok = map[string]string{}, true
	for _, m := range e.members {
		reserver, reserves := m.Policy.(policy.Reserver)
		if !reserves {
			continue
		}
		err := guard(m.Name, func() error {
			keys, err := reserver.Ledgers(pod, node)
			for _, key := range keys {
				l := node.Ledger(key.Resource)
				if key.Node != node.Name || l.Pod(pod.UID) != nil { // a pool, or what the ledger tells already
					continue
				}
				if l == nil {
					l = &snapshot.Ledger{Resource: key.Resource, Node: key.Node}
				}
				claim, verdict := reserver.Reserve(policy.ReserveRequest{Pod: pod, Node: node, Ledger: l, View: noView, At: time.Unix(0, 0)})
				if !verdict.Fits() {
					err = errors.New(verdict.Reason.Text)
				}
				maps.Copy(annotations, claim.Annotations)
			}
			return err
		})
		ok = ok && err == nil
	}
	return annotations, ok
}

var noView = new(snapshot.View)

// counting returns the node with the pods that are nominated to it and count for the pod: those that are as important or more,
// as in kube-scheduler's own filters. n may have pods that the node of the View has not. With certain, pods whose node is not
// known for certain do not count.
func (ns *nominations) counting(n *snapshot.Node, pod *corev1.Pod, certain bool) *snapshot.Node {
	if ns == nil || n == nil || uint(n.Row()) >= uint(len(ns.byRow)) || ns.byRow[n.Row()] == nil {
		return n
	}
	nominated := ns.byRow[n.Row()]
	count := make([]*corev1.Pod, 0, len(nominated.planned))
	for i, p := range nominated.planned {
		if snapshot.Priority(p) >= snapshot.Priority(pod) && p.UID != pod.UID && !(certain && nominated.pods[i].Uncertain) {
			count = append(count, p)
		}
	}
	if n == nominated.node && len(count) == len(nominated.planned) {
		return nominated.with
	}
	return n.With(count...)
}

// withNominated returns the nodes of the request with the pods that are nominated to them and count for its pod. The slice is
// that of the request if none does, and scratch memory otherwise.
func (e *Engine) withNominated(req Request, s *scratch) []*snapshot.Node {
	ns := e.nominations(req.View, req.Nominations)
	if ns == nil {
		return req.Nodes
	}
	s.nodes = append(s.nodes[:0], req.Nodes...)
	for i, n := range s.nodes {
		s.nodes[i] = ns.counting(n, req.Pod, false)
	}
	return s.nodes
}

// CountNominated returns the node with the pods that are nominated to it and count for the pod: what the pod is to be given
// must not be theirs.
func (e *Engine) CountNominated(view *snapshot.View, more *Nominations, pod *corev1.Pod, node *snapshot.Node) *snapshot.Node {
	return e.nominations(view, more).counting(node, pod, false)
}

// Likeliest returns those of the candidates of which kube-scheduler takes one, if no other extender drops any: by its own
// criteria (pickOneNodeForPreemption) they are equally good, and better than the rest.
func Likeliest(candidates []Candidate) []Candidate {
	var best []Candidate
	var least cost
	for _, c := range candidates {
		switch cost := costOf(c); {
		case len(best) == 0, cost.compare(least) < 0:
			best, least = []Candidate{c}, cost
		case cost.compare(least) == 0:
			best = append(best, c)
		}
	}
	return best
}

// cost is what kube-scheduler compares candidates by, in this order; less is better.
type cost struct {
	pdbViolations, highest, sum, victims int64
	started                              time.Time // of the important victims the one that started first; later is better
}

func costOf(c Candidate) cost {
	all := cost{pdbViolations: c.PDBViolations, highest: math.MinInt64, victims: int64(len(c.Victims))}
	for _, uid := range c.Victims {
		i := slices.IndexFunc(c.Node.Pods, func(pod *corev1.Pod) bool { return pod.UID == uid })
		if i < 0 {
			continue // a pod that is not known (yet)
		}
		pod := c.Node.Pods[i]
		value := int64(snapshot.Priority(pod))
		all.sum += value + math.MaxInt32 + 1 // so that more victims always cost more
		switch {
		case value > all.highest:
			all.highest, all.started = value, started(pod)
		case value == all.highest && started(pod).Before(all.started):
			all.started = started(pod)
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
