package snapshot

import (
	"cmp"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Node is one node and the pods on it at one moment. It is immutable; when a node changes, the next
// View has another Node for it.
type Node struct {
	// Name is the node's name, which alone identifies it.
	Name string
	// Object is the trimmed Node object. It is never nil and must not be changed. Its maps may be
	// nil.
	Object *corev1.Node
	// Pods are the pods on the node that have not ended (their phase is neither Succeeded nor
	// Failed), ordered by namespace and name. One without spec.nodeName is decided to be on the
	// node, with the annotations that it will probably get, and is not bound yet. A pod with a
	// deletionTimestamp is still listed: what it holds is free only when it is gone. Neither the
	// slice nor the pods may be changed.
	Pods []*corev1.Pod
	// Ledgers hold the allocations on the node's units, in order of resource, including allocations
	// of pods that are not on the node yet. They are immutable.
	Ledgers []*Ledger

	configMaps  map[ConfigMapSource]map[string]string // nil: none
	devices     []DevicePool
	version     uint64 // see View.Version; 0 if the node cannot be in a View
	row         int32
	facts       facts
	objectFacts *facts  // shared by all Nodes with this Object
	podFacts    []facts // by index in Pods
}

// NewNode returns a node that is in no View: one that exists only in a request (a cluster
// autoscaler's template, or any node when Outboard runs without a cluster), or one in a test. It
// omits pods that have ended. Neither object nor pods may be changed afterwards.
func NewNode(object *corev1.Node, pods ...*corev1.Pod) *Node {
	kept := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range pods {
		if !Ended(pod) {
			kept = append(kept, pod)
		}
	}
	slices.SortFunc(kept, comparePods)
	return &Node{Name: object.Name, Object: object, Pods: kept, row: -1, objectFacts: new(facts), podFacts: podFacts(kept, nil)}
}

// Ledger returns the node's ledger for the resource, or nil, which is an empty one.
func (n *Node) Ledger(resource string) *Ledger {
	for _, l := range n.Ledgers {
		if l.Resource == resource {
			return l
		}
	}
	return nil
}

// Has reports whether the pod with the UID is on the node.
func (n *Node) Has(uid types.UID) bool {
	return slices.ContainsFunc(n.Pods, func(pod *corev1.Pod) bool { return pod.UID == uid })
}

// ConfigMapSource is a family of ConfigMaps with data about nodes: one for each node, in one
// namespace, named Prefix followed by the node's name.
type ConfigMapSource struct{ Namespace, Prefix string }

// ConfigMap returns the data of the node's ConfigMap of the family, or nil if there is none. The
// data must not be changed.
func (n *Node) ConfigMap(source ConfigMapSource) map[string]string { return n.configMaps[source] }

// Row is the node's index in tables of the size [View.Rows], or -1 for a node that is in no View. A
// node keeps its row from View to View while it exists, and its copies by With, Without and
// WithObject have it, too.
func (n *Node) Row() int { return int(n.row) }

// Without returns a copy of the node without the pods for which leaving is true, and without their
// allocations; preemption evaluates such nodes. It returns the receiver itself if no pod leaves.
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

// With returns a copy of the node with these pods added, for pods that are being bound to the node.
// It ignores pods that are on the node already, by UID, and returns the receiver itself if no pod
// is added.
func (n *Node) With(coming ...*corev1.Pod) *Node {
	pods := slices.Clip(n.Pods)
	for _, pod := range coming {
		if !Ended(pod) && !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.UID == pod.UID }) {
			pods = append(pods, pod)
		}
	}
	if len(pods) == len(n.Pods) {
		return n
	}
	slices.SortFunc(pods, comparePods)
	return n.holding(pods)
}

// WithObject returns a copy of the node with another Node object of the same name, for the
// evaluation of a node that is not changed yet.
func (n *Node) WithObject(object *corev1.Node) *Node {
	changed := n.holding(n.Pods)
	changed.Object, changed.objectFacts = object, new(facts)
	return changed
}

func (n *Node) holding(pods []*corev1.Pod) *Node {
	return &Node{Name: n.Name, Object: n.Object, Pods: pods, Ledgers: n.Ledgers, configMaps: n.configMaps, devices: n.devices, version: versions.Add(1), row: n.row, objectFacts: n.objectFacts, podFacts: podFacts(pods, n)}
}

// versions is the last version of a Node. It counts the Nodes of all Builders, and those of With
// and Without, so that a cache may be used with any Views.
var versions atomic.Uint64

// Ended reports whether no container of the pod runs any more: the pod takes nothing of its node.
// The object may exist for seconds after that, until the kubelet has removed volumes and cgroups.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func comparePods(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}
