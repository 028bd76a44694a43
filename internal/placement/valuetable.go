package placement

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

const (
	// A table divides a GPU into at most maxSteps, so that every share is a whole number of steps,
	// or else into roughSteps, and rounds requests up.
	maxSteps   = 128
	roughSteps = 100
	// cells bounds the cores, or cells of memory, of a GPU's part of its node. More than that has
	// no additional value.
	cells      = 96
	cpuCell    = 1000    // thousandths of a core
	memoryCell = 8 << 30 // bytes
	// closing is the probability that a GPU takes no further pod after an offer.
	closing = 0.01
	// withoutGPU is the weight of a pod without GPUs relative to one with GPUs.
	withoutGPU = 0.3
)

// table holds how many thousandths of a GPU will be allocated if f steps of it are free beside x
// cells of another resource: v[f][x].
//
// The GPU is offered pods from the mix, takes every one that fits, and closes with probability δ
// after each offer, so that
//
//	v[f][x] = Σ q·(allocated + v[f−Δf][x−Δx]) / (δ + Σ q)
//
// over the pods that fit.
type table struct {
	steps int
	v     [][cells + 1]float32
}

// stepsOf returns into how many steps the GPUs of the kind are divided.
func stepsOf(m *Mix, kind Kind) int {
	step := kind.Size
	for _, s := range m.shapes() {
		if s.Share > 0 && s.Share <= kind.Size && s.Models.Has(kind.Model) {
			step = divisor(step, s.Share)
		}
	}
	if step > 0 && kind.Size/step <= maxSteps {
		return int(kind.Size / step)
	}
	return roughSteps
}

// divisor returns the greatest common divisor.
func divisor(a, b int64) int64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// tableOffer is a kind of pod: what it takes, how likely it comes next, and what it pays then.
type tableOffer struct {
	f, x    int
	q, paid float64
}

// offersOf returns what the mix offers a GPU of the kind, by f and then by x. Pods pay their worth,
// by steps; need returns what a shape requests of the other resource, in cells. It is divided
// equally among the GPUs of the pod, or, for a pod without GPUs, among the GPUs of the node.
func offersOf(m *Mix, kind Kind, worth []float64, need func(Shape) float64) []tableOffer {
	steps := len(worth) - 1
	byNeed := map[[2]int]tableOffer{}
	for _, s := range m.shapes() {
		if !s.Models.Has(kind.Model) || s.units(kind) > kind.Size {
			continue
		}
		f, x, q := 0, atMost(cells+1, math.Ceil(need(s.Shape)/float64(kind.GPUs))), withoutGPU*s.weight/m.seen
		if s.GPUs > 0 {
			f, x = stepsFor(s.Shape, kind, steps), atMost(cells+1, math.Ceil(need(s.Shape)/float64(s.GPUs)))
			q = s.weight / m.seen
		}
		if f == 0 && x == 0 || x > cells {
			continue // takes nothing, or does not fit
		}
		sum := byNeed[[2]int{f, x}]
		byNeed[[2]int{f, x}] = tableOffer{f, x, sum.q + q, sum.paid + q*worth[f]*Whole}
	}
	return slices.SortedFunc(maps.Values(byNeed), func(a, b tableOffer) int {
		return cmp.Or(cmp.Compare(a.f, b.f), cmp.Compare(a.x, b.x))
	})
}

func atMost(limit int, x float64) int { return int(math.Min(float64(limit), x)) }

func newTable(offers []tableOffer, steps int) *table {
	t := &table{steps, make([][cells + 1]float32, steps+1)}
	for f := range t.v {
		for x := range t.v[f] {
			allocated, offered := 0.0, closing
			for i := range offers {
				o := &offers[i]
				if o.f > f {
					break // so are all that follow
				}
				if o.x <= x {
					allocated += o.paid + o.q*float64(t.v[f-o.f][x-o.x])
					offered += o.q
				}
			}
			t.v[f][x] = float32(allocated / offered)
		}
	}
	return t
}

// at returns the value of a GPU with this free share, 0..1, rounded down to steps, and this number
// of cells, interpolated linearly between whole numbers.
func (t *table) at(free, x float64) float64 {
	const almost = 1e-9 // of a step: absorbs rounding errors
	row := &t.v[max(0, min(t.steps, int(free*float64(t.steps)+almost)))]
	if x >= cells {
		return float64(row[cells])
	}
	if x <= 0 {
		return float64(row[0])
	}
	i := int(x)
	part := float32(x - float64(i))
	return float64(row[i]*(1-part) + row[i+1]*part)
}
