package snapshot

import (
	"hash/maphash"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// View is the state of the cluster at one moment. The zero View is an empty cluster. A nil *View is
// not valid.
type View struct {
	generation uint64
	freed      uint64
	index      *NodeIndex
	objects    *NodeObjects
	rows       rowTable
	budgets    map[string][]*DisruptionBudget // by namespace
	pools      map[string]*Ledger             // by resource
	signals    map[string]*Signal             // by name
	history    *History
	nominated  []*corev1.Pod
	claims     *claimTable
	classes    map[string]*resourcev1.DeviceClass
	devices    int
}

// Generation increases by one with every View that a Builder publishes. It is 0 for the zero View.
func (v *View) Generation() uint64 { return v.generation }

// FreedGeneration increases whenever resources may have become free. If two Views of a Builder have
// the same one, a pod that does not fit in the earlier View does not fit in the later one either:
// the later View differs only by pods that were assumed on nodes ([Builder.AssumePod]).
func (v *View) FreedGeneration() uint64 { return v.freed }

// Len returns the number of nodes.
func (v *View) Len() int {
	if v.index == nil {
		return 0
	}
	return len(v.index.sorted)
}

// NodeIndex identifies the set of nodes and their rows. It is nil for the zero View.
func (v *View) NodeIndex() *NodeIndex { return v.index }

// NodeObjects identifies a set of Node objects and their rows. Two Views with the same pointer have
// the same objects at the same rows: it is a key for caches of what depends on these alone.
type NodeObjects struct{ _ byte } // not empty, because pointers to distinct empty variables may be equal

// NodeObjects returns the identity of the Node objects. It is nil for the zero View.
func (v *View) NodeObjects() *NodeObjects { return v.objects }

// Rows is the length of a table indexed by [Node.Row]. It is at least Len, and grows only with the
// largest number of nodes so far.
func (v *View) Rows() int { return v.rows.length }

// At returns the node at the row, or nil if the row is free or out of range.
func (v *View) At(row int) *Node {
	if row < 0 || row >= v.rows.length {
		return nil
	}
	return v.rows.at(row).node
}

// Version identifies the node at the row, as At returns it: for as long as the process runs, no
// other Node, of any View, has the same version. Unlike a pointer to the Node, a version does not
// keep the Node in memory. It is 0 if the row is free or out of range.
func (v *View) Version(row int) uint64 {
	if row < 0 || row >= v.rows.length {
		return 0
	}
	return v.rows.at(row).version
}

// Node returns the node with the name, or nil.
func (v *View) Node(name string) *Node {
	if v.index == nil {
		return nil
	}
	return v.At(int(rowOf(v.index, name, maphash.String(v.index.seed, name))))
}

// Find sets rows[i] to the row of the node named name(i), or to -1 if there is none. It does not
// allocate and does not keep the names.
func (v *View) Find(rows []int32, name func(i int) []byte) {
	if v.index != nil {
		v.index.find(rows, name)
		return
	}
	for i := range rows {
		rows[i] = -1
	}
}

// All yields every node in order of name.
func (v *View) All() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		if v.index == nil {
			return
		}
		for _, row := range v.index.sorted {
			if !yield(v.rows.at(int(row)).node) {
				return
			}
		}
	}
}

// Ledger returns the ledger with the key, or nil, which is an empty ledger. The ledger of a node
// that does not exist is nil.
func (v *View) Ledger(key LedgerKey) *Ledger {
	if key.Node == "" {
		return v.pools[key.Resource]
	}
	if n := v.Node(key.Node); n != nil {
		return n.Ledger(key.Resource)
	}
	return nil
}

// Pools yields the ledgers of the whole cluster, in order of resource.
func (v *View) Pools() iter.Seq[*Ledger] {
	return func(yield func(*Ledger) bool) {
		for _, resource := range slices.Sorted(maps.Keys(v.pools)) {
			if !yield(v.pools[resource]) {
				return
			}
		}
	}
}

// Signal returns the signal with the name, or nil, which is an empty one.
func (v *View) Signal(name string) *Signal { return v.signals[name] }

// WithNodes returns a copy of the View with these nodes in place of its own. They are made from
// nodes of the View by [Node.With], [Node.Without] and [Node.WithObject], at most one from each.
func (v *View) WithNodes(nodes ...*Node) *View {
	if !slices.ContainsFunc(nodes, func(n *Node) bool { return v.rows.at(int(n.row)).node != n }) {
		return v
	}
	with := *v
	with.rows = v.rows.with(nodes)
	return &with
}

// WithoutPod returns a copy of the View without the pod on the node, for the evaluation of that pod
// itself. The pod keeps its claims. It returns the View itself if the pod is not there.
func (v *View) WithoutPod(node string, uid types.UID) *View {
	n := v.Node(node)
	if n == nil || !n.Has(uid) {
		return v
	}
	return v.WithNodes(n.holding(slices.DeleteFunc(slices.Clone(n.Pods), func(pod *corev1.Pod) bool { return pod.UID == uid })))
}

// ChangedSince yields the nodes of the View that are not the same in an earlier one, which has the
// same NodeIndex. Its cost is that of comparing one pointer for each 64 nodes, and 64 rows for each
// changed node.
func (v *View) ChangedSince(earlier *View) iter.Seq[*Node] {
	return v.rows.changedSince(&earlier.rows)
}
