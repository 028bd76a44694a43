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
	i := indexNamed(n.Nodes, name)
	if i < 0 {
		return NominatedNode{}, false
	}
	return n.Nodes[i], true
}

func indexNamed(nodes []NominatedNode, name string) int {
	return slices.IndexFunc(nodes, func(n NominatedNode) bool { return n.Name == name })
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
// A nomination that no Nominate has announced goes from not nominated to nominated. When Nominate is called again, the nominations that follow
// the earlier calls may still have to be shown: each change that SetPod shows is that of the earliest call that allows it.
type nominee struct {
	*Nomination
	// expected are the nodes of Nominate; one once the pod is nominated to it.
	expected []NominatedNode
	shown    bool // the pod is nominated to the expected node
	// earlier are the nodes of nominations that were not shown, and that are not the answer to the last call: those of earlier calls, the
	// earliest first, and then the one that another replica was called for.
	earlier [][]NominatedNode
}

// Nominate says that kube-scheduler will nominate the pod, which is on no node, and here in its latest state, to one of the nodes: it has been
// told which pods it can evict there, and counts the pod from then on. former is the node to which the pod is nominated already, if SetPod has
// yet to show that; "" if not. Nominate replaces what an earlier call has said about the pod. forget takes that back, unless SetPod has shown
// the nomination. seen is whether SetPod has shown the pod: otherwise forget also takes back the nomination that pod has here, because the pod
// may be gone.
func (b *Builder) Nominate(pod *corev1.Pod, former string, nodes []NominatedNode) (forget func(seen bool)) {
	if b.Pod(pod.UID) != nil || len(nodes) == 0 {
		return func(bool) {}
	}
	nodes = slices.Clone(nodes) // forget finds what this call has said by its address
	next := nominee{expected: nodes}
	now := b.nominated[pod.UID]
	if now != nil && !now.shown && len(now.expected) > 0 {
		next.earlier = append(slices.Clip(now.earlier), now.expected)
	}
	announced := func(nodes []NominatedNode) bool { return indexNamed(nodes, former) >= 0 }
	if former != "" && !slices.ContainsFunc(next.earlier, announced) {
		next.earlier = append(slices.Clip(next.earlier), []NominatedNode{{Name: former}})
	}
	if now != nil { // it may leave another node
		b.expect(pod, next)
	} else {
		b.withoutRoom(func() { b.expect(pod, next) })
	}
	return func(seen bool) { b.forgetNomination(pod.UID, nodes, seen) }
}

// forgetNomination takes back what a call of Nominate has said.
func (b *Builder) forgetNomination(uid types.UID, nodes []NominatedNode, seen bool) {
	n := b.nominated[uid]
	if n == nil || n.shown {
		return
	}
	said := func(of []NominatedNode) bool { return len(of) > 0 && &of[0] == &nodes[0] }
	switch {
	case said(n.expected) && seen:
		b.expect(n.Pod, nominee{})
		return
	case said(n.expected):
		b.endNomination(uid)
		return
	}
	if i := slices.IndexFunc(n.earlier, said); i >= 0 {
		n.earlier = slices.Delete(n.earlier, i, i+1)
	}
}

// showNomination records the nomination of a pod that is on the node; "": on none.
func (b *Builder) showNomination(pod *corev1.Pod, node string) {
	former := b.nominated[pod.UID]
	own := pod.Status.NominatedNodeName
	switch {
	case node != "" || pod.DeletionTimestamp != nil || Ended(pod):
		b.endNomination(pod.UID)
	case former == nil && own == "", former != nil && same(former.Pod, pod):
	case former == nil:
		b.expect(pod, nominee{})
	default:
		b.expect(pod, former.after(own))
	}
}

// after returns what is expected after SetPod has shown that the pod is nominated to the node; "": to none.
func (n nominee) after(node string) nominee {
	i := indexNamed(n.expected, node)
	switch {
	case n.shown && i < 0:
		return nominee{}
	case n.shown || node == n.Pod.Status.NominatedNodeName:
		return n
	}
	if k := slices.IndexFunc(n.earlier, func(nodes []NominatedNode) bool { return indexNamed(nodes, node) >= 0 }); k >= 0 {
		n.earlier = n.earlier[k+1:]
		return n
	}
	if i >= 0 {
		return nominee{expected: n.expected[i : i+1], shown: true}
	}
	return n
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

// expect records the pod in its latest state, of which n says what is expected.
func (b *Builder) expect(pod *corev1.Pod, n nominee) {
	nodes := n.expected
	if own := pod.Status.NominatedNodeName; own != "" && indexNamed(nodes, own) < 0 {
		nodes = append([]NominatedNode{{Name: own}}, nodes...)
	}
	if len(nodes) == 0 {
		b.endNomination(pod.UID)
		return
	}
	if b.nominated == nil {
		b.nominated = map[types.UID]*nominee{}
	}
	n.Nomination = &Nomination{pod, nodes}
	b.nominated[pod.UID] = &n
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
