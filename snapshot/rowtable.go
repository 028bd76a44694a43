package snapshot

import (
	"iter"
	"slices"
)

// rowTable holds the nodes of a View by row, in chunks that Views share. With 5,000 nodes, a View
// in which one node has changed copies 64 rows and 79 pointers. A rowTable is immutable. The zero
// rowTable is empty.
type rowTable struct {
	chunks []*rowChunk
	length int
}

// rowChunk has about as many nodes as there are chunks in a large cluster: then both copies are
// small.
type rowChunk [1 << chunkBits]row

// row holds the version of its node, too, because reading it from the node loads memory that is
// rarely in the processor's caches. Of a free row, both are zero.
type row struct {
	node    *Node
	version uint64
}

const chunkBits = 6

func newRowTable(rows []*Node) rowTable {
	t := rowTable{chunks: make([]*rowChunk, 0, (len(rows)+len(rowChunk{})-1)/len(rowChunk{})), length: len(rows)}
	for chunk := range slices.Chunk(rows, len(rowChunk{})) {
		c := new(rowChunk)
		for i, n := range chunk {
			if n != nil {
				c[i] = row{n, n.version}
			}
		}
		t.chunks = append(t.chunks, c)
	}
	return t
}

// at returns the row with this index, which must be in range.
func (t *rowTable) at(index int) *row {
	return &t.chunks[index>>chunkBits][index&(len(rowChunk{})-1)]
}

// with returns the table with these nodes at their rows, which must be in range.
func (t *rowTable) with(nodes []*Node) rowTable {
	next := rowTable{chunks: slices.Clone(t.chunks), length: t.length}
	for _, n := range nodes {
		at := int(n.row) >> chunkBits
		if next.chunks[at] == t.chunks[at] {
			c := *t.chunks[at]
			next.chunks[at] = &c
		}
		next.chunks[at][int(n.row)&(len(rowChunk{})-1)] = row{n, n.version}
	}
	return next
}

// changedSince yields the nodes that are not those of the earlier table, which has the same rows in
// use.
func (t *rowTable) changedSince(earlier *rowTable) iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for at, c := range t.chunks {
			before := earlier.chunks[at]
			if c == before {
				continue
			}
			for i := range c {
				if c[i].version != before[i].version && !yield(c[i].node) {
					return
				}
			}
		}
	}
}
