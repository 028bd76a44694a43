package snapshot

import (
	"cmp"
	"slices"
)

// NodeIndex is the part of a View that depends only on the names of the nodes. Views share it until
// a node is added or deleted: in Views with the same NodeIndex, a row has the same name.
type NodeIndex struct {
	names  []string // by row; that of a free row is empty
	sorted []int32  // rows in order of name
	rows   map[string]int32
}

func newNodeIndex(rows []*Node) *NodeIndex {
	x := &NodeIndex{names: make([]string, len(rows)), rows: make(map[string]int32, len(rows))}
	for row, n := range rows {
		if n != nil {
			x.names[row], x.rows[n.Name] = n.Name, int32(row)
			x.sorted = append(x.sorted, int32(row))
		}
	}
	slices.SortFunc(x.sorted, func(a, b int32) int { return cmp.Compare(x.names[a], x.names[b]) })
	return x
}

// Name returns the name of the node at the row, which must be in use; it does not load the node.
func (x *NodeIndex) Name(row int) string { return x.names[row] }
