package snapshot

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// Nomination is a pod that is nominated to a node: kube-scheduler evicts pods there to make room for it, or is about to bind it. It is
// immutable, and stays the same from View to View while nothing about it changes.
type Nomination struct {
	// Pod is not bound, and not in [Node.Pods].
	Pod *corev1.Pod
	// Nodes are one or more nodes, of which kube-scheduler has chosen one.
	Nodes []NominatedNode
}

// NominatedNode is a node to which a pod is nominated, or may be.
type NominatedNode struct {
	// Name is the name of the node, which need not exist.
	Name string
	// Victims are the pods that are evicted for it; none if this process does not know them.
	Victims []types.UID
}

// Node returns the nominated node with the name; ok is false if the pod is not nominated to it.
func (n *Nomination) Node(name string) (node NominatedNode, ok bool) {
	i := slices.IndexFunc(n.Nodes, func(c NominatedNode) bool { return c.Name == name })
	if i < 0 {
		return NominatedNode{}, false
	}
	return n.Nodes[i], true
}

// Nominated returns the nominated pods. The most important pod comes first: the one with the highest priority, and of those the oldest. The
// slice must not be changed.
func (v *View) Nominated() []*Nomination { return v.nominated }

// nominee is a nominated pod, or one that kube-scheduler is about to nominate:
//
//	                    Nominate             SetPod, nominated to one of the nodes
//	not nominated ◀────────────────▶ expected ────────────────────────────────────▶ nominated
//	     ▲                forget                                                        │
//	     └──────────────────────────────────────────────────────────────────────────────┘
//	       SetPod, not nominated there any more; in every state: SetPod or AssumePod, on a node; DeletePod
//
// A nomination that no Nominate has announced goes from not nominated to nominated.
type nominee struct {
	*Nomination
	// expected are the nodes of Nominate; one once the pod is nominated to it.
	expected []NominatedNode
	shown    bool // the pod is nominated to the expected node
}

// Nominate says that kube-scheduler will nominate the pod, which is on no node, and here in its latest state, to one of the nodes: it has been
// told which pods it can evict there, and counts the pod from then on. forget takes that back in this Builder or a clone of it, unless SetPod
// has shown the nomination. Nominate replaces what an earlier call has said about the pod.
func (b *Builder) Nominate(pod *corev1.Pod, nodes []NominatedNode) (forget func(*Builder)) {
	if b.Pod(pod.UID) != nil || len(nodes) == 0 {
		return func(*Builder) {}
	}
	nodes = slices.Clone(nodes)      // forget finds what this call has said by its address
	if b.nominated[pod.UID] != nil { // it may leave another node
		b.expect(pod, nodes, false)
	} else {
		b.withoutRoom(func() { b.expect(pod, nodes, false) })
	}
	return func(b *Builder) {
		if n := b.nominated[pod.UID]; n != nil && !n.shown && len(n.expected) > 0 && &n.expected[0] == &nodes[0] {
			b.expect(n.Pod, nil, false)
		}
	}
}

// showNomination records the nomination of a pod that is on the node; "": on none.
func (b *Builder) showNomination(pod *corev1.Pod, node string) {
	former := b.nominated[pod.UID]
	switch {
	case node != "" || pod.DeletionTimestamp != nil || Ended(pod):
		b.endNomination(pod.UID)
	case former == nil && pod.Status.NominatedNodeName == "", former != nil && same(former.Pod, pod):
	case former == nil:
		b.expect(pod, nil, false)
	default:
		b.expect(pod, former.expected, former.shown)
	}
}

// nominatedElsewhere reports whether the pod is nominated to another node than this one.
func (b *Builder) nominatedElsewhere(uid types.UID, node string) bool {
	n := b.nominated[uid]
	return n != nil && slices.ContainsFunc(n.Nodes, func(n NominatedNode) bool { return n.Name != node })
}

func (b *Builder) endNomination(uid types.UID) {
	if b.nominated[uid] != nil {
		delete(b.nominated, uid)
		b.nominatedDirty = true
	}
}

// expect records that the pod, in its latest state, will be nominated to one of the expected nodes. If shown is true, it has been.
func (b *Builder) expect(pod *corev1.Pod, expected []NominatedNode, shown bool) {
	own := pod.Status.NominatedNodeName
	nodes := expected
	switch i := slices.IndexFunc(expected, func(n NominatedNode) bool { return n.Name == own }); {
	case i >= 0:
		nodes, shown = expected[i:i+1], true
		expected = nodes
	case shown: // not any more
		expected, shown = nil, false
		nodes = nil
		fallthrough
	default:
		if own != "" {
			nodes = append([]NominatedNode{{Name: own}}, nodes...)
		}
	}
	if len(nodes) == 0 {
		b.endNomination(pod.UID)
		return
	}
	if b.nominated == nil {
		b.nominated = map[types.UID]*nominee{}
	}
	b.nominated[pod.UID] = &nominee{Nomination: &Nomination{pod, nodes}, expected: expected, shown: shown}
	b.nominatedDirty = true
}

// nominations returns the nominated pods for a View.
func (b *Builder) nominations() []*Nomination {
	if len(b.nominated) == 0 {
		return nil
	}
	all := make([]*Nomination, 0, len(b.nominated))
	for _, n := range b.nominated {
		all = append(all, n.Nomination)
	}
	slices.SortFunc(all, func(x, y *Nomination) int {
		return cmp.Or(
			-cmp.Compare(corev1helpers.PodPriority(x.Pod), corev1helpers.PodPriority(y.Pod)),
			x.Pod.CreationTimestamp.Compare(y.Pod.CreationTimestamp.Time),
			comparePods(x.Pod, y.Pod),
		)
	})
	return all
}
