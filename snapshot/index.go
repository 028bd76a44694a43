package snapshot

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
)

// NodeIndex is the part of a View that depends only on the names of the nodes. Views share it until a node is added or
// deleted: in Views with the same NodeIndex, a row has the same name.
type NodeIndex struct {
	// names are the names of all nodes, in order of rows. ends holds where the name of each row ends; it begins where
	// the one before ends. The name of a free row is empty.
	names  string
	ends   []int32
	sorted []int32 // rows in order of name
	// slots is an open-addressing table. Its size is a power of two, and at least half of its slots are free. It is
	// small, because kube-scheduler uses the processor's caches between two calls.
	slots []slot
}

// slot is empty, or holds a row and a part of the hash of its name.
type slot struct {
	hash uint32
	next int32 // row + 1; 0: empty
}

var hashSeed = maphash.MakeSeed()

func newNodeIndex(rows []*Node) *NodeIndex {
	size := 1
	for size < 2*len(rows) {
		size *= 2
	}
	x := &NodeIndex{ends: make([]int32, len(rows)), slots: make([]slot, size)}
	var names strings.Builder
	for row, n := range rows {
		if n != nil {
			names.WriteString(n.Name)
			x.sorted = append(x.sorted, int32(row))
		}
		x.ends[row] = int32(names.Len())
	}
	x.names = names.String()
	slices.SortFunc(x.sorted, func(a, b int32) int { return cmp.Compare(x.name(a), x.name(b)) })
	for _, row := range x.sorted {
		hash := maphash.String(hashSeed, x.name(row))
		at := x.home(hash)
		for x.slots[at].next != 0 {
			at = x.after(at)
		}
		x.slots[at] = slot{tag(hash), row + 1}
	}
	return x
}

// Name returns the name of the node at the row, which must be in use; it does not load the node.
func (x *NodeIndex) Name(row int) string { return x.name(int32(row)) }

func (x *NodeIndex) name(row int32) string {
	if row == 0 {
		return x.names[:x.ends[0]]
	}
	return x.names[x.ends[row-1]:x.ends[row]]
}

// home is the first slot to search for a hash, and after is the next one. tag is the part of the hash that a slot
// holds; home uses another part.
func (x *NodeIndex) home(hash uint64) uint32  { return uint32(hash) & uint32(len(x.slots)-1) }
func (x *NodeIndex) after(slot uint32) uint32 { return (slot + 1) & uint32(len(x.slots)-1) }
func tag(hash uint64) uint32                  { return uint32(hash >> 32) }

// candidate returns the first row from the slot at on whose name may have the hash, and the slot after it; the row is
// -1 if there is none.
func (x *NodeIndex) candidate(at uint32, hash uint64) (row int32, next uint32) {
	for ; x.slots[at].next != 0; at = x.after(at) {
		if x.slots[at].hash == tag(hash) {
			return x.slots[at].next - 1, x.after(at)
		}
	}
	return -1, at
}

// row returns the row with the name, or -1.
func (x *NodeIndex) row(name string) int32 {
	hash := maphash.String(hashSeed, name)
	row, next := x.candidate(x.home(hash), hash)
	for row >= 0 && x.name(row) != name {
		row, next = x.candidate(next, hash)
	}
	return row
}

// find implements [View.Find]. It makes several passes over the names. The memory accesses of one pass do not depend on
// each other, so that the processor does many of them at the same time.
func (x *NodeIndex) find(rows []int32, name func(i int) []byte) {
	const block = 64
	var hashes [block]uint64
	var begins [block]int32
	var letters [block]byte
	for first := 0; first < len(rows); first += block {
		some := rows[first:min(first+block, len(rows))]
		for j := range some {
			hashes[j] = maphash.Bytes(hashSeed, name(first+j))
		}
		for j := range some {
			some[j], _ = x.candidate(x.home(hashes[j]), hashes[j])
		}
		for j, row := range some {
			if begins[j] = 0; row > 0 {
				begins[j] = x.ends[row-1]
			}
		}
		for j, row := range some {
			if letters[j] = 0; row >= 0 {
				letters[j] = x.names[begins[j]]
			}
		}
		for j, row := range some {
			wanted := name(first + j)
			if row >= 0 && (len(wanted) == 0 || wanted[0] != letters[j] || x.names[begins[j]:x.ends[row]] != string(wanted)) {
				some[j] = x.row(string(wanted)) // usually two names with the same hash
			}
		}
	}
}
