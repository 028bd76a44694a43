package placement

import (
	"cmp"
	"container/heap"
)

// Index finds the best node for a shape without rating all of them: it remembers how
// it rated each, and rates again only those that have changed. For each shape it keeps
// the offers in heaps, one for each of their [Terms], so that changed prices need no
// more than a look at the heads. What it finds is what a look at all nodes would find.
// It belongs to one goroutine.
type Index struct {
	nodes    []*Node
	rate     func(place int, n *Node, s Shape) Offers
	versions []int32 // by node
	changes  []int32 // nodes in the order in which they changed
	latest   []int32 // by node: where its latest change stands in changes
	shapes   map[Shape]*ranking
}

// ranking are the offers for one shape.
type ranking struct {
	seen  int // how many of the changes are in it
	heaps map[Terms]*offerHeap
}

// entry is an offer of a node as it was at a version.
type entry struct {
	cost    Cost
	node    int32
	nth     int8 // of the node's offers
	version int32
	gpu     int8
}

func (e entry) before(other entry) bool {
	return cmp.Or(cmp.Compare(e.cost, other.cost), cmp.Compare(e.node, other.node), cmp.Compare(e.nth, other.nth)) < 0
}

type offerHeap []entry

func (h offerHeap) Len() int           { return len(h) }
func (h offerHeap) Less(i, j int) bool { return h[i].before(h[j]) }
func (h offerHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *offerHeap) Push(x any)        { *h = append(*h, x.(entry)) }
func (h *offerHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// NewIndex returns an Index over the nodes, which its owner changes, and then calls
// Changed. rate must depend on its arguments alone.
func NewIndex(nodes []*Node, rate func(place int, n *Node, s Shape) Offers) *Index {
	x := &Index{nodes: nodes, versions: make([]int32, len(nodes)), latest: make([]int32, len(nodes))}
	x.Rerate(rate)
	return x
}

// Rerate forgets everything and rates with another function from now on.
func (x *Index) Rerate(rate func(place int, n *Node, s Shape) Offers) {
	x.rate, x.shapes, x.changes = rate, map[Shape]*ranking{}, nil
}

// Changed says that the node at the place is not as it was.
func (x *Index) Changed(place int) {
	x.versions[place]++
	x.latest[place] = int32(len(x.changes))
	x.changes = append(x.changes, int32(place))
}

// Best returns the place of the node with the smallest cost, price included, and the
// GPU of its offer; ok is false when the shape fits nowhere. Of equal ones it is the
// first offer of the first node. price may be nil, and otherwise depends on the terms alone.
func (x *Index) Best(s Shape, price func(Terms) Cost) (place, gpu int, ok bool) {
	r := x.ranking(s)
	var best entry
	for terms, h := range r.heaps {
		for h.Len() > 0 && (*h)[0].version != x.versions[(*h)[0].node] {
			heap.Pop(h) // not true any more
		}
		if h.Len() == 0 {
			delete(r.heaps, terms)
			continue
		}
		head := (*h)[0]
		if price != nil {
			head.cost += price(terms)
		}
		if !ok || head.before(best) {
			best, ok = head, true
		}
	}
	return int(best.node), int(best.gpu), ok
}

// ranking returns the offers for the shape, up to date.
func (x *Index) ranking(s Shape) *ranking {
	r := x.shapes[s]
	if r == nil || len(x.changes)-r.seen > 2*len(x.nodes) {
		r = &ranking{seen: len(x.changes), heaps: map[Terms]*offerHeap{}}
		x.shapes[s] = r
		for place := range x.nodes {
			r.add(x, s, int32(place))
		}
		return r
	}
	for i, place := range x.changes[r.seen:] {
		if r.seen+i == int(x.latest[place]) {
			r.add(x, s, place)
		}
	}
	r.seen = len(x.changes)
	return r
}

func (r *ranking) add(x *Index, s Shape, place int32) {
	offers := x.rate(int(place), x.nodes[place], s)
	for nth, o := range offers.All() {
		h := r.heaps[o.Terms]
		if h == nil {
			h = new(offerHeap)
			r.heaps[o.Terms] = h
		}
		heap.Push(h, entry{cost: o.Cost, node: place, nth: int8(nth), version: x.versions[place], gpu: o.GPU})
	}
}
