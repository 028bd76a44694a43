package gpumemory

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"outboard.dev/outboard/placement"
	"outboard.dev/outboard/snapshot"
)

// This file is what the placement strategies know about the cluster as a whole. All
// of it follows from the View: what is kept from View to View changes speed alone.

// keptLessons is how many lessons are kept: the one in use, the one that is next, and
// one for requests that are late.
const keptLessons = 3

// placer rates places for one policy.
type placer struct {
	policy *gpuMemory
	rooms  *snapshot.Fact[*room]
	latest atomic.Pointer[market]

	mu      sync.Mutex
	lessons []*lesson // the latest first
}

// lesson is what follows from the pods that came before, and from what kinds of nodes
// there are.
type lesson struct {
	start *snapshot.HistoryStart
	after int // pods that had come
	kinds *kinds

	once sync.Once
	rate func(*placement.Node, placement.Shape) placement.Offers
	// Nil unless that is the strategy:
	fragmentation *placement.Fragmentation
	waste         *placement.Waste
}

// kinds are those of the nodes, by row; rows without a node have the zero Kind, which
// has no GPUs.
type kinds struct {
	nodes int
	rows  []placement.Kind
	cpu   []int64 // capacity, by row
}

func (k *kinds) equal(other *kinds) bool {
	return k == other || k.nodes == other.nodes && slices.Equal(k.rows, other.rows) && slices.Equal(k.cpu, other.cpu)
}

// market is what a View means to the strategy. It never changes.
type market struct {
	placer *placer
	view   *snapshot.View
	lesson *lesson
	kinds  *kinds
	supply *placement.Supply // nil if there are no prices
	prices *placement.Prices
}

func newPlacer(p *gpuMemory) *placer {
	return &placer{policy: p, rooms: snapshot.NewFact(func(n *snapshot.Node) *room { return p.roomOf(n, p.books.Of(n)) })}
}

// strategies make what rates a node for a shape.
var strategies = map[NodeScore]func(*lesson, *placement.Mix){
	BestFitNodes: func(l *lesson, _ *placement.Mix) {
		cpu, gpus := int64(0), 0
		for row, kind := range l.kinds.rows {
			cpu, gpus = max(cpu, l.kinds.cpu[row]), max(gpus, kind.GPUs)
		}
		l.rate = placement.NewBestFit(cpu, gpus).Rate
	},
	FGD: func(l *lesson, mix *placement.Mix) {
		l.fragmentation = placement.NewFragmentation(mix, l.kinds.rows)
		l.rate = l.fragmentation.Rate
	},
	LeastWaste: func(l *lesson, mix *placement.Mix) {
		l.waste = placement.NewWaste(mix, l.kinds.rows)
		l.rate = l.waste.Rate
	},
}

// market returns what the View means.
func (p *placer) market(view *snapshot.View) *market {
	last := p.latest.Load()
	if last != nil && last.view == view {
		return last
	}
	m := &market{placer: p, view: view}
	if last != nil && last.view.NodeIndex() == view.NodeIndex() {
		p.follow(m, last)
	} else {
		p.begin(m)
	}
	p.latest.Store(m)
	return m
}

// Precompute implements engine.Precomputer: it learns the next lesson before it is due.
func (p *gpuMemory) Precompute(view *snapshot.View) {
	if p.placer == nil {
		return
	}
	m := p.placer.market(view)
	if next := placement.NextLesson(came(view), view.Len()); next != m.lesson.after {
		p.placer.lesson(view, m.kinds, next)
	}
}

// begin looks at every node.
func (p *placer) begin(m *market) {
	m.kinds = p.kindsOf(m.view)
	m.lesson = p.lesson(m.view, m.kinds, placement.Lesson(came(m.view), m.view.Len()))
	if m.lesson.waste == nil {
		return
	}
	m.supply = placement.NewSupply(m.lesson.waste)
	for n := range m.view.All() {
		m.supply.Add(&(*p.rooms.Of(n)).node)
	}
	m.prices = m.supply.Prices()
}

// follow looks at the nodes that have changed since the last market.
func (p *placer) follow(m, last *market) {
	var changed []int
	for row := range m.view.Rows() {
		if m.view.At(row) == last.view.At(row) {
			continue
		}
		changed = append(changed, row)
		if r := *p.rooms.Of(m.view.At(row)); r.kind != last.kinds.rows[row] || r.node.CPUCapacity != last.kinds.cpu[row] {
			p.begin(m)
			return
		}
	}
	m.kinds = last.kinds
	m.lesson = p.lesson(m.view, m.kinds, placement.Lesson(came(m.view), m.view.Len()))
	if m.lesson != last.lesson {
		p.begin(m)
		return
	}
	if m.supply, m.prices = last.supply, last.prices; m.supply == nil || len(changed) == 0 {
		return
	}
	m.supply = last.supply.Clone()
	for _, row := range changed {
		m.supply.Remove(&(*p.rooms.Of(last.view.At(row))).node)
		m.supply.Add(&(*p.rooms.Of(m.view.At(row))).node)
	}
	m.prices = m.supply.Prices()
}

func came(view *snapshot.View) int {
	if h := view.History(); h != nil {
		return h.Came
	}
	return 0
}

func (p *placer) kindsOf(view *snapshot.View) *kinds {
	k := &kinds{nodes: view.Len(), rows: make([]placement.Kind, view.Rows()), cpu: make([]int64, view.Rows())}
	for n := range view.All() {
		r := *p.rooms.Of(n)
		k.rows[n.Row()], k.cpu[n.Row()] = r.kind, r.node.CPUCapacity
	}
	return k
}

// lesson returns what is to be learnt from the first pods that came, so many of them.
// It takes long only when nobody has asked before.
func (p *placer) lesson(view *snapshot.View, k *kinds, after int) *lesson {
	var start *snapshot.HistoryStart
	if h := view.History(); h != nil {
		start = h.Start
	}
	p.mu.Lock()
	i := slices.IndexFunc(p.lessons, func(l *lesson) bool { return l.start == start && l.after == after && l.kinds.equal(k) })
	var l *lesson
	if i >= 0 {
		l = p.lessons[i]
		p.lessons = slices.Delete(p.lessons, i, i+1)
	} else {
		l = &lesson{start: start, after: after, kinds: k}
	}
	p.lessons = slices.Insert(p.lessons, 0, l)
	p.lessons = p.lessons[:min(len(p.lessons), keptLessons)]
	p.mu.Unlock()
	l.once.Do(func() { strategies[p.policy.config.ScoreNodes](l, p.policy.mix(view, after)) })
	return l
}

// mix is what the first pods that came asked for, so many of them. A shape is worked
// out once for each pod that came and once for each that went.
func (p *gpuMemory) mix(view *snapshot.View, after int) *placement.Mix {
	h, remembers := view.History(), view.Len()
	if p.config.ScoreNodes == FGD {
		remembers = math.MaxInt32 // the typical pods are those of all that are known
	}
	learner := placement.NewLearner(remembers)
	if h == nil {
		return learner.Mix()
	}
	seen := h.Start.Came
	for _, e := range h.Events {
		if seen >= after {
			break
		}
		if !e.Gone {
			seen++
		}
		s, possible := p.shape(e.Pod)
		switch {
		case !possible:
		case e.Gone:
			learner.Depart(s)
		default:
			learner.Arrive(s)
		}
	}
	return learner.Mix()
}

// query is a shape for which nodes are rated.
type query struct {
	shape placement.Shape
	slot  uint32 // where ratings for it are kept
}

func newQuery(s placement.Shape) query {
	hash := uint64(s.CPU)*0x9e3779b97f4a7c15 ^ uint64(s.Memory)*0xc2b2ae3d27d4eb4f ^ uint64(s.Share)*0x165667b19e3779f9 ^ uint64(s.GPUs)*0x27d4eb2f165667c5
	return query{s, uint32(hash>>32) % ratingSlots}
}

// cost is what it costs to place the shape on the node, and the GPU for it; the
// largest cost there is where it does not fit.
func (m *market) cost(n *snapshot.Node, q *query) placement.Cost {
	r := *m.placer.rooms.Of(n)
	slot := &r.ratings[q.slot]
	kept := slot.Load()
	if kept == nil || kept.lesson != m.lesson || kept.shape != q.shape {
		kept = &rating{m.lesson, q.shape, m.lesson.rate(&r.node, q.shape)}
		slot.Store(kept)
	}
	best, found := m.best(&kept.offers, q.shape)
	if !found {
		return math.MaxInt64
	}
	if m.prices != nil {
		best.Cost += r.order
	}
	return best.Cost
}

// best returns the best of the offers, its price included.
func (m *market) best(offers *placement.Offers, s placement.Shape) (best placement.Offer, found bool) {
	for _, o := range offers.All() {
		if m.prices != nil {
			o.Cost += m.prices.Of(s, o.Terms)
		}
		if !found || o.Cost < best.Cost {
			best, found = o, true
		}
	}
	return best, found
}
