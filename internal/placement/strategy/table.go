package strategy

import (
	"slices"
	"sync"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/snapshot"
)

const (
	// maxTableBytes is how much memory a Ranker uses for tables, about 120 shapes with 5,000 nodes,
	// and maxTables how many there are at most.
	maxTableBytes = 24 << 20
	maxTables     = 256
	// ratedBytes is the size of a rated.
	ratedBytes = 40
	// maxTerms is how many different terms a table has at most before all nodes are rated again.
	maxTerms = 1 << 12
)

// table holds the offers of all nodes for one shape, near each other in memory: prices change with
// each View, and offers only with their node. Many offers have the same terms, of which the price
// is computed once.
type table struct {
	shape  placement.Shape
	model  *workloadModel
	nodes  []rated // by row
	terms  []placement.Terms
	index  map[placement.Terms]uint32 // of terms
	prices []placement.Cost           // of terms, in one View
}

// rated holds the offers of one node.
type rated struct {
	version uint64            // of the node: other rows are not valid
	costs   [2]placement.Cost // with that of the node's position in the order
	terms   [2]uint32
	count   uint8
}

// tables are those that were used last, the latest first. One request at a time owns a table. The
// zero value is ready to use.
type tables struct {
	mu  sync.Mutex
	all []*table
}

// take removes the table of the shape and returns it, or a new one.
func (ts *tables) take(shape placement.Shape) *table {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	i := slices.IndexFunc(ts.all, func(t *table) bool { return t.shape == shape })
	if i < 0 {
		return &table{shape: shape}
	}
	t := ts.all[i]
	ts.all = slices.Delete(ts.all, i, i+1)
	return t
}

// put keeps the table instead of those that were not used for the longest time.
func (ts *tables) put(t *table) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.all = slices.Insert(ts.all, 0, t)
	most := max(1, min(maxTables, maxTableBytes/ratedBytes/max(1, cap(t.nodes))))
	ts.all = slices.Delete(ts.all, min(most, len(ts.all)), len(ts.all))
}

func (r *Ranking) ScoreRows(rows []int32, scores []int64) {
	ranker, view := r.state.ranker, r.state.view
	t := ranker.tables.take(r.shape)
	if t.model != r.state.model || len(t.terms) > maxTerms {
		t.model = r.state.model
		t.reset()
	}
	if view.Rows() > len(t.nodes) {
		t.nodes = append(make([]rated, 0, view.Rows()), t.nodes...)[:view.Rows()]
	}
	t.price(r.state)
	for i, row := range rows {
		entry := &t.nodes[row]
		if version := view.Version(int(row)); entry.version != version {
			t.rate(r.state, view.At(int(row)), entry)
			entry.version = version
		}
		best := noRoom
		for o := range entry.count {
			best = min(best, entry.costs[o]+t.prices[entry.terms[o]])
		}
		scores[i] = scoreOf(best)
	}
	ranker.tables.put(t)
}

// reset makes the table forget all nodes.
func (t *table) reset() {
	clear(t.nodes)
	t.terms, t.index = t.terms[:0], map[placement.Terms]uint32{}
}

// price computes the prices in the state.
func (t *table) price(s *clusterState) {
	t.prices = t.prices[:0]
	for _, terms := range t.terms {
		t.prices = append(t.prices, s.priceOf(t.shape, terms))
	}
}

// priceOf returns the price to add to the cost of an offer.
func (s *clusterState) priceOf(shape placement.Shape, terms placement.Terms) placement.Cost {
	if s.prices == nil {
		return 0
	}
	return s.prices.Of(shape, terms)
}

// rate sets the offers of the node.
func (t *table) rate(s *clusterState, n *snapshot.Node, entry *rated) {
	state := s.ranker.states.Of(n)
	offers := s.model.Rate(&state.node, t.shape)
	*entry = rated{}
	for _, o := range offers.All() {
		at, known := t.index[o.Terms]
		if !known {
			at = uint32(len(t.terms))
			t.index[o.Terms] = at
			t.terms, t.prices = append(t.terms, o.Terms), append(t.prices, s.priceOf(t.shape, o.Terms))
		}
		entry.costs[entry.count], entry.terms[entry.count] = o.Cost, at
		if s.prices != nil {
			entry.costs[entry.count] += state.order
		}
		entry.count++
	}
}
