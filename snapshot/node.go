package snapshot

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Node is one node and the pods on it, at one moment. It never changes; a node
// that changes is replaced by another Node in the next View.
type Node struct {
	// Name is the node's name, and its only identity.
	Name string
	// Object is the trimmed Node object. It is never nil and must not be
	// written to. Its maps may be nil.
	Object *corev1.Node
	// Pods are the pods bound to the node that have not ended (their phase is
	// neither Succeeded nor Failed), ordered by namespace and name. A pod with a
	// deletionTimestamp is still here: what it holds is free only when it is
	// gone. Neither the slice nor the pods may be written to.
	Pods []*corev1.Pod
	// Ledgers say what has been handed out of the node's devices, in order of
	// resource: also to pods that are not on the node yet. They may not be written
	// to.
	Ledgers []*Ledger

	configMaps  map[ConfigMapSource]map[string]string // nil: none
	row         int32
	facts       facts
	objectFacts *facts // shared by all Nodes with this Object
}

// NewNode returns a node that belongs to no View: one that exists only in a
// request (a cluster autoscaler's template, or any node when Outboard runs
// without a cluster), or one in a test. Pods that have ended are left out.
// Neither object nor pods may be written to afterwards.
func NewNode(object *corev1.Node, pods ...*corev1.Pod) *Node {
	kept := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range pods {
		if !ended(pod) {
			kept = append(kept, pod)
		}
	}
	slices.SortFunc(kept, comparePods)
	return &Node{Name: object.Name, Object: object, Pods: kept, row: -1, objectFacts: new(facts)}
}

// Ledger returns the node's ledger of the resource, or nil, which is an empty one.
func (n *Node) Ledger(resource string) *Ledger {
	for _, l := range n.Ledgers {
		if l.Resource == resource {
			return l
		}
	}
	return nil
}

// Has says whether the pod with the UID is bound to the node.
func (n *Node) Has(uid types.UID) bool {
	return slices.ContainsFunc(n.Pods, func(pod *corev1.Pod) bool { return pod.UID == uid })
}

// ConfigMapSource is a family of ConfigMaps that say something about nodes: there
// is one for each node, in one namespace, named Prefix followed by the node's name.
type ConfigMapSource struct{ Namespace, Prefix string }

// ConfigMap returns the data of the node's ConfigMap of the family, or nil if there
// is none. It may not be written to.
func (n *Node) ConfigMap(source ConfigMapSource) map[string]string { return n.configMaps[source] }

// Row is the node's place in tables indexed by [View.Rows], or -1 for a node
// that belongs to no View. A node keeps its row from View to View for as long as
// it exists, and so do the Nodes made of it by With and Without.
func (n *Node) Row() int { return int(n.row) }

// Without returns the node as it would be without the pods for which leaving is
// true, and without their claims: what preemption asks a policy about. The
// receiver is not changed. When no pod leaves, the receiver itself is returned.
func (n *Node) Without(leaving func(*corev1.Pod) bool) *Node {
	if !slices.ContainsFunc(n.Pods, leaving) {
		return n
	}
	pods := make([]*corev1.Pod, 0, len(n.Pods))
	gone := map[types.UID]bool{}
	for _, pod := range n.Pods {
		if leaving(pod) {
			gone[pod.UID] = true
		} else {
			pods = append(pods, pod)
		}
	}
	rest := n.holding(pods)
	rest.Ledgers = slices.Clone(n.Ledgers)
	for i, l := range rest.Ledgers {
		rest.Ledgers[i] = l.Without(func(uid types.UID) bool { return gone[uid] })
	}
	return rest
}

// With returns the node as it would be with these pods too: what binding asks a
// policy about while other pods are on their way to the node. Pods that are on
// the node already, by UID, are not counted twice. The receiver is not changed.
// When no pod is added, the receiver itself is returned.
func (n *Node) With(coming ...*corev1.Pod) *Node {
	pods := slices.Clip(n.Pods)
	for _, pod := range coming {
		if !ended(pod) && !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.UID == pod.UID }) {
			pods = append(pods, pod)
		}
	}
	if len(pods) == len(n.Pods) {
		return n
	}
	slices.SortFunc(pods, comparePods)
	return n.holding(pods)
}

func (n *Node) holding(pods []*corev1.Pod) *Node {
	return &Node{Name: n.Name, Object: n.Object, Pods: pods, Ledgers: n.Ledgers, configMaps: n.configMaps, row: n.row, objectFacts: n.objectFacts}
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func comparePods(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}
