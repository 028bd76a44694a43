package snapshot

import "slices"

// rowTable holds the nodes of a View by row, in chunks that Views share. With 5,000 nodes, a View in which one node has changed copies
// 64 + 79 pointers. A rowTable is immutable. The zero rowTable is empty.
type rowTable struct {
	chunks []*rowChunk
	length int
}

// rowChunk has about as many nodes as there are chunks in a large cluster: then both copies are small.
type rowChunk [1 << chunkBits]*Node

const chunkBits = 6

func newRowTable(rows []*Node) rowTable {
	t := rowTable{chunks: make([]*rowChunk, 0, (len(rows)+len(rowChunk{})-1)/len(rowChunk{})), length: len(rows)}
	for chunk := range slices.Chunk(rows, len(rowChunk{})) {
		c := new(rowChunk)
		copy(c[:], chunk)
		t.chunks = append(t.chunks, c)
	}
	return t
}

// at returns the node at the row, which must be in range.
func (t *rowTable) at(row int) *Node { return t.chunks[row>>chunkBits][row&(len(rowChunk{})-1)] }

// with returns the table with these nodes at their rows, which must be in range.
func (t *rowTable) with(nodes []*Node) rowTable {
	next := rowTable{chunks: slices.Clone(t.chunks), length: t.length}
	for _, n := range nodes {
		at := int(n.row) >> chunkBits
		if next.chunks[at] == t.chunks[at] {
			c := *t.chunks[at]
			next.chunks[at] = &c
		}
		next.chunks[at][int(n.row)&(len(rowChunk{})-1)] = n
	}
	return next
}
