package snapshot

import (
	"iter"
	"maps"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// View is the cluster at one moment. The zero View is an empty cluster. A nil
// *View is not valid.
type View struct {
	generation uint64
	index      *NodeSet
	rows       []*Node
	budgets    []*policyv1.PodDisruptionBudget
	pools      map[string]*Ledger // by resource
	columns    map[string]*Column // by name
	history    *History
	nominated  map[string][]*corev1.Pod // by node
}

// NodeSet is what depends on the names of the nodes alone. Views share it until a
// node is added or deleted: in Views with the same NodeSet, the same rows belong
// to the same names.
type NodeSet struct {
	byName map[string]int32
	names  []string // by row; one allocation, in row order, so that a scan reads memory in order; "" is a free row
	sorted []int32  // rows in order of name
	next   []atomic.Int32
}

// Generation grows by one with every View a Builder publishes. It is 0 for the
// zero View.
func (v *View) Generation() uint64 { return v.generation }

// Len is the number of nodes.
func (v *View) Len() int {
	if v.index == nil {
		return 0
	}
	return len(v.index.sorted)
}

// NodeSet identifies which nodes there are, and their rows. Nil for the zero View.
func (v *View) NodeSet() *NodeSet { return v.index }

// Rows is the length of a table indexed by [Node.Row]. It is at least Len and
// grows only with the largest number of nodes there has been.
func (v *View) Rows() int { return len(v.rows) }

// At returns the node at the row, or nil when the row is free or out of range.
func (v *View) At(row int) *Node {
	if row < 0 || row >= len(v.rows) {
		return nil
	}
	return v.rows[row]
}

// Node returns the node with the name, or nil.
func (v *View) Node(name string) *Node {
	if v.index == nil {
		return nil
	}
	row, ok := v.index.byName[name]
	if !ok {
		return nil
	}
	return v.rows[row]
}

// All yields every node in order of name.
func (v *View) All() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		if v.index == nil {
			return
		}
		for _, row := range v.index.sorted {
			if !yield(v.rows[row]) {
				return
			}
		}
	}
}

// DisruptionBudgets returns the PodDisruptionBudgets, ordered by namespace and
// name. Neither the slice nor the budgets may be written to.
func (v *View) DisruptionBudgets() []*policyv1.PodDisruptionBudget { return v.budgets }

// Ledger returns what has been handed out of the key's resource, or nil, which is
// an empty ledger. A ledger of a node that does not exist is nil.
func (v *View) Ledger(key LedgerKey) *Ledger {
	if key.Node == "" {
		return v.pools[key.Resource]
	}
	if n := v.Node(key.Node); n != nil {
		return n.Ledger(key.Resource)
	}
	return nil
}

// Column returns what the outside source with the name says, or nil, which is
// nothing.
func (v *View) Column(name string) *Column { return v.columns[name] }

// Columns yields every column in order of name.
func (v *View) Columns() iter.Seq[*Column] {
	return func(yield func(*Column) bool) {
		for _, name := range slices.Sorted(maps.Keys(v.columns)) {
			if !yield(v.columns[name]) {
				return
			}
		}
	}
}

// Cursor finds nodes by name in a sequence of names. kube-scheduler asks about
// the same nodes in nearly the same order again and again, so a Cursor first
// compares with the node that followed the last time, and consults the map only
// when that guess is wrong. What it learns is shared by all Views with the same
// set of nodes and changes speed alone, never an answer.
type Cursor struct {
	view *View
	prev int32 // row of the last name found, -1 before the first
}

// Cursor returns a Cursor at the beginning. It belongs to one goroutine.
func (v *View) Cursor() Cursor { return Cursor{view: v, prev: -1} }

// Find returns the row of the node with the name, or -1. It does not allocate and
// does not keep the name.
func (c *Cursor) Find(name []byte) int {
	ix := c.view.index
	if ix == nil || len(ix.sorted) == 0 || len(name) == 0 {
		return -1
	}
	guess := &ix.next[c.prev+1]
	row := guess.Load()
	if ix.names[row] != string(name) {
		var ok bool
		if row, ok = ix.byName[string(name)]; !ok {
			return -1
		}
		guess.Store(row)
	}
	c.prev = row
	return int(row)
}
