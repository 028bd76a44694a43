package placement

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
)

const (
	// minMemory and perNode are how many arrivals a Learner remembers: more pods fit a
	// larger cluster, so it takes longer to see what pods request of it.
	minMemory = 1000
	perNode   = 0.8
	// forgetEvery is the number of arrivals between two times of forgetting.
	forgetEvery = 64
	// forgotten is the weight below which a shape is dropped, so that shapes that do
	// not come again do not pile up.
	forgotten = 0.02
	// firstLesson is after how many arrivals the first lesson is worth learning, and
	// newShare the part of what is remembered that has to be new for the next.
	firstLesson = 16
	newShare    = 0.25
	// delay is the part of what is remembered that comes before a lesson is used, so
	// that there is time to learn it.
	delay = 0.1
)

// Mix is what pods have requested lately. It never changes. A nil Mix is empty.
type Mix struct {
	weights  map[Shape]float64
	departed map[Shape]float64 // those of the pods that have gone
	seen     float64           // sum of the weights
}

type weighted struct {
	Shape
	weight float64
	asked  float64 // of all GPUs together, in thousandths; see Waste
}

// All yields the shapes in a fixed order, each with its weight, of which Seen is the sum.
func (m *Mix) All() iter.Seq2[Shape, float64] {
	return func(yield func(Shape, float64) bool) {
		for _, s := range m.shapes() {
			if !yield(s.Shape, s.weight) {
				return
			}
		}
	}
}

// shapes are in a fixed order.
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
		cmp.Compare(a.Memory, b.Memory), cmp.Compare(a.Models.names, b.Models.names))
}

// Seen is the number of pods the mix stands for.
func (m *Mix) Seen() float64 {
	if m == nil {
		return 0
	}
	return m.seen
}

// Learner remembers what the pods that come request, the latest best. It belongs to
// one goroutine.
type Learner struct {
	mix    Mix
	memory float64 // arrivals remembered
	count  int     // arrivals since the last forgetting
}

// NewLearner returns a Learner for a cluster of so many nodes.
func NewLearner(nodes int) *Learner {
	return &Learner{mix: Mix{weights: map[Shape]float64{}, departed: map[Shape]float64{}}, memory: memory(nodes)}
}

func memory(nodes int) float64 { return math.Max(minMemory, perNode*float64(nodes)) }

// Arrive says that a pod has come.
func (l *Learner) Arrive(s Shape) {
	l.mix.weights[s]++
	l.mix.seen++
	if l.count++; l.count >= forgetEvery {
		l.count = 0
		l.forget()
	}
}

// Depart says that a pod that had come, and been placed, has gone.
func (l *Learner) Depart(s Shape) { l.mix.departed[s]++ }

// forget scales everything down to what is to be remembered.
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
	for _, s := range l.mix.shapes() { // in order, because a sum of fractions depends on it
		l.mix.weights[s.Shape] = s.weight * factor
		l.mix.seen += s.weight * factor
	}
}

// Lesson returns from how many of the first pods that ever came one should have learned
// when so many have come: 0 at first, and the same for a while, because learning takes
// time.
func Lesson(came, nodes int) int {
	return NextLesson(came-int(delay*math.Min(float64(came), memory(nodes))), nodes)
}

// NextLesson returns what Lesson will return when a few more have come, or does
// already.
func NextLesson(came, nodes int) int {
	at, full := 0, int(memory(nodes))
	for at < full {
		next := at + max(firstLesson, int(newShare*float64(at)))
		if next > came {
			return at
		}
		at = next
	}
	step := max(firstLesson, int(newShare*float64(full)))
	return at + max(0, came-at)/step*step
}

// Mix returns what is remembered now.
func (l *Learner) Mix() *Mix {
	mix := l.mix
	mix.weights, mix.departed = maps.Clone(l.mix.weights), maps.Clone(l.mix.departed)
	return &mix
}
