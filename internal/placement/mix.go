package placement

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
)

const (
	// minMemory and perNode are how many arrivals a Learner remembers: a larger cluster has more
	// pods, so it takes longer to observe what pods request.
	minMemory = 1000
	perNode   = 0.8
	// forgetEvery is the number of arrivals between two calls of forget.
	forgetEvery = 64
	// forgotten is the weight below which a shape is dropped, so that shapes that no longer come do
	// not accumulate.
	forgotten = 0.02
	// firstModelPods is the number of arrivals before the first model, and newShare the share of
	// the remembered arrivals that must be new for the next model.
	firstModelPods = 16
	newShare       = 0.25
	// delay is the share of the remembered arrivals between learning a model and using it, so that
	// there is time to compute it.
	delay = 0.1
)

// Mix is what pods have requested lately. It is immutable. A nil Mix is empty.
type Mix struct {
	weights  map[Shape]float64
	departed map[Shape]float64 // of the pods that have departed
	seen     float64           // sum of the weights
}

type weighted struct {
	Shape
	weight    float64
	requested float64 // of all GPUs together, in thousandths; see Waste
}

// All yields the shapes in a fixed order, each with its weight.
func (m *Mix) All() iter.Seq2[Shape, float64] {
	return func(yield func(Shape, float64) bool) {
		for _, s := range m.shapes() {
			if !yield(s.Shape, s.weight) {
				return
			}
		}
	}
}

// shapes returns the shapes in a fixed order.
func (m *Mix) shapes() []weighted {
	if m == nil {
		return nil
	}
	all := make([]weighted, 0, len(m.weights))
	for s, w := range m.weights {
		all = append(all, weighted{Shape: s, weight: w})
	}
	slices.SortFunc(all, func(a, b weighted) int { return compareShapes(a.Shape, b.Shape) })
	return all
}

func compareShapes(a, b Shape) int {
	return cmp.Or(cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Share, b.Share), cmp.Compare(a.CPU, b.CPU),
		cmp.Compare(a.Memory, b.Memory), cmp.Compare(a.Models.names, b.Models.names), cmp.Compare(a.Profile, b.Profile))
}

// Learner remembers what arriving pods request, with more weight for later ones. It belongs to one
// goroutine.
type Learner struct {
	mix    Mix
	memory float64 // number of arrivals to remember
	count  int     // arrivals since the last call of forget
}

// NewLearner returns a Learner for a cluster with this number of nodes.
func NewLearner(nodes int) *Learner {
	return &Learner{mix: Mix{weights: map[Shape]float64{}, departed: map[Shape]float64{}}, memory: memory(nodes)}
}

func memory(nodes int) float64 { return math.Max(minMemory, perNode*float64(nodes)) }

// Arrive adds a pod that has arrived.
func (l *Learner) Arrive(s Shape) {
	l.mix.weights[s]++
	l.mix.seen++
	if l.count++; l.count >= forgetEvery {
		l.count = 0
		l.forget()
	}
}

// Depart adds the departure of a pod that had arrived and was placed.
func (l *Learner) Depart(s Shape) { l.mix.departed[s]++ }

// forget scales all weights down to what is to be remembered.
func (l *Learner) forget() {
	factor := l.memory / l.mix.seen
	if factor >= 1 {
		return
	}
	drop := func(_ Shape, weight float64) bool { return weight*factor < forgotten }
	maps.DeleteFunc(l.mix.weights, drop)
	maps.DeleteFunc(l.mix.departed, drop)
	for s := range l.mix.departed {
		l.mix.departed[s] *= factor
	}
	l.mix.seen = 0
	for _, s := range l.mix.shapes() { // in order, because a sum of floating-point numbers depends on it
		l.mix.weights[s.Shape] = s.weight * factor
		l.mix.seen += s.weight * factor
	}
}

// ModelPods returns how many of the first pods the workload model learns from, after came pods have
// arrived: 0 at first, and the same number for a while, because learning takes time.
func ModelPods(came, nodes int) int {
	return NextModelPods(came-int(delay*math.Min(float64(came), memory(nodes))), nodes)
}

// NextModelPods returns what ModelPods will return, or already returns, after a few more arrivals.
func NextModelPods(came, nodes int) int {
	at, full := 0, int(memory(nodes))
	for at < full {
		next := at + max(firstModelPods, int(newShare*float64(at)))
		if next > came {
			return at
		}
		at = next
	}
	step := max(firstModelPods, int(newShare*float64(full)))
	return at + max(0, came-at)/step*step
}

// Mix returns the current mix.
func (l *Learner) Mix() *Mix {
	mix := l.mix
	mix.weights, mix.departed = maps.Clone(l.mix.weights), maps.Clone(l.mix.departed)
	return &mix
}
