// Package strategy ranks nodes, and the GPUs of a node, by the cost of placing a pod there. The
// cost depends on the state of the node and on which pods usually come, which is learned from the
// history of the View. The package is independent of any protocol: [Options] describe what a node
// has and what a pod requests.
package strategy

import (
	"slices"
	"sync"
	"sync/atomic"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/snapshot"
)

// Strategy is a way to rate places.
type Strategy struct {
	// Name is the name of the strategy in explanations.
	Name string
	// Rater returns the Rater for a mix of pods that usually come, and for these kinds of nodes.
	Rater func(mix *placement.Mix, nodes []placement.Kind) Rater
	// RemembersAll is true if the strategy learns from all pods of the history, and not only from
	// the latest.
	RemembersAll bool
}

// Rater rates placements. It is immutable.
type Rater struct {
	// Rate returns the possible placements of the shape on the node, with the cost of each.
	Rate func(*placement.Node, placement.Shape) placement.Offers
	// Waste is not nil if Rate is its method: then the prices, which depend on what is free in the
	// whole cluster, are added to the costs.
	Waste *placement.Waste
}

// LeastWaste prefers the placements that waste the least of what the usual pods could use; see
// [placement.Waste].
func LeastWaste() Strategy {
	return Strategy{Name: "LeastWaste", Rater: func(mix *placement.Mix, nodes []placement.Kind) Rater {
		w := placement.NewWaste(mix, nodes)
		return Rater{Rate: w.Rate, Waste: w}
	}}
}

// Options configure a Ranker.
type Options struct {
	Strategy Strategy
	// Node returns what is free of a node. It depends on the node alone.
	Node func(*snapshot.Node) placement.Node
	// Shapes returns the Shapes of a View: last, if they are still right, or other ones. first has
	// the first node of each kind. last is nil at first, and may be of an older View.
	Shapes func(last Shapes, view *snapshot.View, first []*snapshot.Node) Shapes
}

// Shapes are what pods request. It is immutable, and comparable: a pointer.
type Shapes interface {
	// Of returns what a pod requests, bound or not; possible is false if no node can serve it, or
	// if no shape describes it.
	Of(snapshot.PodEvent) (s placement.Shape, possible bool)
}

// keptModels is how many models are kept: the current one, the next one, and one for late requests.
const keptModels = 3

// Ranker ranks nodes by a strategy. Its results depend only on the View: what it keeps from View to
// View only makes it faster. It is safe for concurrent use.
type Ranker struct {
	options Options
	states  *snapshot.Fact[nodeState]
	latest  atomic.Pointer[clusterState]
	tables  tables

	mu     sync.Mutex
	models []*workloadModel // the latest one first
}

// New returns a Ranker.
func New(o Options) *Ranker {
	r := &Ranker{options: o}
	r.states = snapshot.NewFact(func(n *snapshot.Node) nodeState {
		free := o.Node(n)
		return nodeState{free, free.Kind(), placement.Order(string(n.Object.UID))}
	})
	return r
}

// nodeState is what is free of a node, and its place in the order of all nodes.
type nodeState struct {
	node  placement.Node
	kind  placement.Kind
	order placement.Cost
}

// clusterState is the state of a View, for the strategy. It is immutable.
type clusterState struct {
	ranker *Ranker
	view   *snapshot.View
	model  *workloadModel
	kinds  *kinds
	shapes Shapes
	supply *placement.Supply // nil if there are no prices
	prices *placement.Prices
}

// kinds are the kinds of the nodes, by row; rows without a node have the zero Kind, which has no
// GPUs.
type kinds struct {
	nodes int
	rows  []placement.Kind
	first []int // the first row of each kind
}

func (k *kinds) equal(other *kinds) bool {
	return k == other || k.nodes == other.nodes && slices.Equal(k.rows, other.rows)
}

// state returns the state of the View.
func (r *Ranker) state(view *snapshot.View) *clusterState {
	last := r.latest.Load()
	if last != nil && last.view == view {
		return last
	}
	s := &clusterState{ranker: r, view: view}
	if last == nil || last.view.NodeIndex() != view.NodeIndex() || !s.changeFrom(last) {
		s.begin(last)
	}
	r.latest.Store(s)
	return s
}

// Precompute learns the next model before requests need it.
func (r *Ranker) Precompute(view *snapshot.View) {
	s := r.state(view)
	if next := placement.NextModelPods(came(view), view.Len()); next != s.model.after {
		r.model(s, next)
	}
}

// begin reads every node.
func (s *clusterState) begin(last *clusterState) {
	s.kinds = s.ranker.kindsOf(s.view)
	s.read(last)
	if s.model.Waste == nil {
		return
	}
	s.supply = placement.NewSupply(s.model.Waste)
	for n := range s.view.All() {
		s.supply.Add(&s.ranker.states.Of(n).node)
	}
	s.prices = s.supply.Prices()
}

// read sets the shapes and the model, for the kinds.
func (s *clusterState) read(last *clusterState) {
	first := make([]*snapshot.Node, len(s.kinds.first))
	for i, row := range s.kinds.first {
		first[i] = s.view.At(row)
	}
	if last != nil {
		s.shapes = last.shapes
	}
	s.shapes = s.ranker.options.Shapes(s.shapes, s.view, first)
	s.model = s.ranker.model(s, placement.ModelPods(came(s.view), s.view.Len()))
}

// changeFrom reads the nodes that have changed since the last state. It returns false if all nodes
// must be read.
func (s *clusterState) changeFrom(last *clusterState) bool {
	states := s.ranker.states
	var changed []int
	for n := range s.view.ChangedSince(last.view) {
		row := n.Row()
		changed = append(changed, row)
		if states.Of(n).kind != last.kinds.rows[row] {
			return false
		}
	}
	s.kinds = last.kinds
	if s.read(last); s.model != last.model {
		return false
	}
	if s.supply, s.prices = last.supply, last.prices; s.supply == nil || len(changed) == 0 {
		return true
	}
	s.supply = last.supply.Clone()
	for _, row := range changed {
		s.supply.Remove(&states.Of(last.view.At(row)).node)
		s.supply.Add(&states.Of(s.view.At(row)).node)
	}
	s.prices = s.supply.Prices()
	return true
}

func (r *Ranker) kindsOf(view *snapshot.View) *kinds {
	k := &kinds{nodes: view.Len(), rows: make([]placement.Kind, view.Rows())}
	known := map[placement.Kind]bool{}
	for n := range view.All() {
		kind := r.states.Of(n).kind
		if k.rows[n.Row()] = kind; !known[kind] {
			known[kind] = true
			k.first = append(k.first, n.Row())
		}
	}
	return k
}
