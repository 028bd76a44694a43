// Package strategy ranks nodes, and the GPUs of a node, by what it costs to place a pod there. What a
// place costs follows from the state of the node and from which pods usually come, which is learned from
// the history of the View. The package knows no protocol: [Options] say what a node has and a pod requests.
package strategy

import (
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/placement"
	"outboard.dev/outboard/snapshot"
)

// Strategy is a way to rate places.
type Strategy struct {
	// Name is what explanations call it.
	Name string
	// Rater returns what rates places when pods like those of the mix usually come, for a cluster
	// of nodes of these kinds.
	Rater func(mix *placement.Mix, nodes []placement.Kind) Rater
	// RemembersAll says that all pods of the history are learned from, and not only the latest.
	RemembersAll bool
}

// Rater rates places. It never changes.
type Rater struct {
	// Rate returns the ways to place the shape on the node, and what each costs.
	Rate func(*placement.Node, placement.Shape) placement.Offers
	// Waste is not nil if Rate is its own: the prices that follow from what the whole cluster has
	// left are then added to the costs.
	Waste *placement.Waste
}

// LeastWaste prefers places where the least is wasted of what the pods that usually come could use; see
// [placement.Waste].
func LeastWaste() Strategy {
	return Strategy{Name: "LeastWaste", Rater: func(mix *placement.Mix, nodes []placement.Kind) Rater {
		w := placement.NewWaste(mix, nodes)
		return Rater{Rate: w.Rate, Waste: w}
	}}
}

// Options are the parts of a Ranker.
type Options struct {
	Strategy Strategy
	// Node returns what is free of a node. It depends on the node alone.
	Node func(*snapshot.Node) placement.Node
	// Shape returns what a pod requests, wherever it is; possible is false if no node can serve it.
	Shape func(*corev1.Pod) (s placement.Shape, possible bool)
}

// keptModels is how many models are kept: the one in use, the one that is next, and
// one for requests that are late.
const keptModels = 3

// Ranker ranks nodes by a strategy. All that it says follows from the View: what it keeps from View
// to View changes how long that takes, and nothing else. It may be used by any number of goroutines.
type Ranker struct {
	options Options
	states  *snapshot.Fact[*nodeState]
	latest  atomic.Pointer[clusterState]

	mu     sync.Mutex
	models []*workloadModel // the latest first
}

// New returns a Ranker.
func New(o Options) *Ranker {
	r := &Ranker{options: o}
	r.states = snapshot.NewFact(func(n *snapshot.Node) *nodeState { return newNodeState(n, o.Node(n)) })
	return r
}

// clusterState is what a View means to the strategy. It never changes.
type clusterState struct {
	ranker *Ranker
	view   *snapshot.View
	model  *workloadModel
	kinds  *kinds
	supply *placement.Supply // nil if there are no prices
	prices *placement.Prices
}

// kinds are those of the nodes, by row; rows without a node have the zero Kind, which
// has no GPUs.
type kinds struct {
	nodes int
	rows  []placement.Kind
}

func (k *kinds) equal(other *kinds) bool {
	return k == other || k.nodes == other.nodes && slices.Equal(k.rows, other.rows)
}

// state returns what the View means.
func (r *Ranker) state(view *snapshot.View) *clusterState {
	last := r.latest.Load()
	if last != nil && last.view == view {
		return last
	}
	s := &clusterState{ranker: r, view: view}
	if last == nil || last.view.NodeIndex() != view.NodeIndex() || !s.follow(last) {
		s.begin()
	}
	r.latest.Store(s)
	return s
}

// Precompute learns the model that requests will need next, before they do.
func (r *Ranker) Precompute(view *snapshot.View) {
	s := r.state(view)
	if next := placement.NextLesson(came(view), view.Len()); next != s.model.after {
		r.model(view, s.kinds, next)
	}
}

// begin reads every node.
func (s *clusterState) begin() {
	s.kinds = s.ranker.kindsOf(s.view)
	s.model = s.ranker.model(s.view, s.kinds, placement.Lesson(came(s.view), s.view.Len()))
	if s.model.Waste == nil {
		return
	}
	s.supply = placement.NewSupply(s.model.Waste)
	for n := range s.view.All() {
		s.supply.Add(&(*s.ranker.states.Of(n)).node)
	}
	s.prices = s.supply.Prices()
}

// follow reads the nodes that have changed since the last state. It returns false if that does
// not do.
func (s *clusterState) follow(last *clusterState) bool {
	states := s.ranker.states
	var changed []int
	for row := range s.view.Rows() {
		if s.view.At(row) == last.view.At(row) {
			continue
		}
		changed = append(changed, row)
		if (*states.Of(s.view.At(row))).kind != last.kinds.rows[row] {
			return false
		}
	}
	s.kinds = last.kinds
	if s.model = s.ranker.model(s.view, s.kinds, placement.Lesson(came(s.view), s.view.Len())); s.model != last.model {
		return false
	}
	if s.supply, s.prices = last.supply, last.prices; s.supply == nil || len(changed) == 0 {
		return true
	}
	s.supply = last.supply.Clone()
	for _, row := range changed {
		s.supply.Remove(&(*states.Of(last.view.At(row))).node)
		s.supply.Add(&(*states.Of(s.view.At(row))).node)
	}
	s.prices = s.supply.Prices()
	return true
}

func (r *Ranker) kindsOf(view *snapshot.View) *kinds {
	k := &kinds{nodes: view.Len(), rows: make([]placement.Kind, view.Rows())}
	for n := range view.All() {
		k.rows[n.Row()] = (*r.states.Of(n)).kind
	}
	return k
}

// best returns the best of the offers, its price included.
func (s *clusterState) best(offers *placement.Offers, shape placement.Shape) (best placement.Offer, found bool) {
	for _, o := range offers.All() {
		if s.prices != nil {
			o.Cost += s.prices.Of(shape, o.Terms)
		}
		if !found || o.Cost < best.Cost {
			best, found = o, true
		}
	}
	return best, found
}

// GPU returns the index of the GPU on which a share for the pod costs the least, given what is free
// of the node, or [placement.FirstFree] if the strategy does not say.
func (r *Ranker) GPU(view *snapshot.View, pod *corev1.Pod, node *placement.Node) int {
	shape, possible := r.options.Shape(pod)
	if view == nil || !possible || !shape.Shares() {
		return placement.FirstFree
	}
	s := r.state(view)
	offers := s.model.Rate(node, shape)
	if best, found := s.best(&offers, shape); found {
		return int(best.GPU)
	}
	return placement.FirstFree
}
