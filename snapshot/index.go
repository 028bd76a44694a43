package snapshot

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// NodeIndex is the part of a View that depends only on the names of the nodes. Views share it until
// a node is added or deleted: in Views with the same NodeIndex, a row has the same name.
type NodeIndex struct {
	names  []string // by row; that of a free row is empty
	sorted []int32  // rows in order of name
	// homes is an open-addressing table by the hash of the name. It has rows plus 1, or 0. Its size
	// is a power of two, and at least three quarters of it are free, so that most rows are at the
	// first position.
	homes []int32
	seed  maphash.Seed
}

func newNodeIndex(rows []*Node) *NodeIndex {
	size := 4
	for size < 4*len(rows) {
		size *= 2
	}
	x := &NodeIndex{names: make([]string, len(rows)), homes: make([]int32, size), seed: maphash.MakeSeed()}
	for row, n := range rows {
		if n == nil {
			continue
		}
		x.names[row], x.sorted = n.Name, append(x.sorted, int32(row))
		hash := maphash.String(x.seed, n.Name)
		for *x.home(hash) != 0 {
			hash++
		}
		*x.home(hash) = int32(row) + 1
	}
	slices.SortFunc(x.sorted, func(a, b int32) int { return cmp.Compare(x.names[a], x.names[b]) })
	return x
}

// home returns the first position to search for a name with the hash, and that after it for hash+1.
func (x *NodeIndex) home(hash uint64) *int32 { return &x.homes[hash&uint64(len(x.homes)-1)] }

// rowOf returns the row of the node with the name, which has this hash, or -1.
func rowOf[N string | []byte](x *NodeIndex, name N, hash uint64) int32 {
	for ; ; hash++ {
		if row := *x.home(hash) - 1; row < 0 || x.names[row] == string(name) {
			return row
		}
	}
}

// find is Find of a View. Most of what it reads misses the processor's caches. Reads that do not
// depend on each other are made at the same time, so short loops first read what all names need.
func (x *NodeIndex) find(rows []int32, name func(i int) []byte) {
	for i := range rows {
		rows[i] = int32(maphash.Bytes(x.seed, name(i)))
	}
	for i, hash := range rows {
		rows[i] = *x.home(uint64(hash)) - 1
	}
	x.touch(rows)
	for i, row := range rows {
		if name := name(i); row >= 0 && x.names[row] != string(name) {
			rows[i] = rowOf(x, name, maphash.Bytes(x.seed, name))
		}
	}
}

// touch reads the names at the rows. The compiler would leave out reads of which it sees that their
// result is not used.
//
//go:noinline
func (x *NodeIndex) touch(rows []int32) (sum byte) {
	for _, row := range rows {
		if row >= 0 && x.names[row] != "" {
			sum += x.names[row][0]
		}
	}
	return sum
}

// Name returns the name of the node at the row, which must be in use; it does not load the node.
func (x *NodeIndex) Name(row int) string { return x.names[row] }
