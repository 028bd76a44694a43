package strategy

import (
	"math"
	"slices"
	"sync"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/snapshot"
)

// workloadModel is what the strategy learned from the pods that came, for the kinds of nodes.
type workloadModel struct {
	start  *snapshot.HistoryStart
	after  int // number of pods that had come
	kinds  *kinds
	shapes Shapes

	once sync.Once
	Rater
}

// model returns what is learned from the first after pods that came. It takes long only on first
// use.
func (r *Ranker) model(s *clusterState, after int) *workloadModel {
	view, k := s.view, s.kinds
	var start *snapshot.HistoryStart
	if h := view.History(); h != nil {
		start = h.Start
	}
	r.mu.Lock()
	i := slices.IndexFunc(r.models, func(m *workloadModel) bool {
		return m.start == start && m.after == after && m.shapes == s.shapes && m.kinds.equal(k)
	})
	if i < 0 {
		i, r.models = 0, slices.Insert(r.models, 0, &workloadModel{start: start, after: after, kinds: k, shapes: s.shapes})
	}
	m := r.models[i]
	r.models = r.models[:min(len(r.models), keptModels)]
	r.mu.Unlock()
	m.once.Do(func() { m.Rater = r.options.Strategy.Rater(r.mix(view, s.shapes, after), k.rows) })
	return m
}

// mix returns what the first after pods that came requested. It computes a shape once for each pod
// that came and once for each that went.
func (r *Ranker) mix(view *snapshot.View, shapes Shapes, after int) *placement.Mix {
	h, remembers := view.History(), view.Len()
	if r.options.Strategy.RemembersAll {
		remembers = math.MaxInt32
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
		s, possible := shapes.Of(e)
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

func came(view *snapshot.View) int {
	if h := view.History(); h != nil {
		return h.Came
	}
	return 0
}
