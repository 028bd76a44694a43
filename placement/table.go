package placement

import "math"

const (
	// milliStep is the grain of GPU shares in a table, in thousandths: finer shares are
	// rounded up.
	milliStep  = 10
	milliSteps = Whole / milliStep
	// cells is how many cores, or cells of memory, a GPU's part in its node is
	// told apart up to. More is worth no more.
	cells      = 96
	cpuCell    = 1000    // thousandths of a core
	memoryCell = 8 << 30 // bytes
	// closing is the probability that a GPU takes no further pod after each offer.
	closing = 0.01
	// withoutGPU is how much a pod without GPUs counts against one with.
	withoutGPU = 0.3
)

// table says how many thousandths of a GPU will be sold, of which f·milliStep are free
// beside x cells of another resource: v[f][x].
//
// The GPU is offered pods from the mix, takes every one that fits, and closes with
// probability δ after each offer, so that
//
//	v[f][x] = Σ q·(sold + v[f−Δf][x−Δx]) / (δ + Σ q)
//
// over the pods that fit.
type table [milliSteps + 1][cells + 1]float32

// buyer is a kind of pod as a table knows it.
type buyer struct{ f, x int }

// buyers are how likely each kind is to come next, and what it then pays.
type buyers map[buyer]struct{ q, paid float64 }

// buyersOf returns what the mix offers a GPU of the kind. need is what a shape asks
// for of the other resource, in cells. Each GPU of a pod with several gets an equal
// part of that, and so does each GPU of the node of a pod without.
func buyersOf(m *Mix, kind Kind, need func(Shape) float64) buyers {
	all := buyers{}
	for _, s := range m.shapes() {
		if !s.Models.Has(kind.Model) || s.GPUs > 0 && s.on(kind) > Whole {
			continue
		}
		b, q, paid := buyer{x: atMost(cells+1, math.Ceil(need(s.Shape)/float64(kind.GPUs)))}, withoutGPU*s.weight/m.seen, 0.0
		if s.GPUs > 0 {
			b = buyer{f: (s.on(kind) + milliStep - 1) / milliStep, x: atMost(cells+1, math.Ceil(need(s.Shape)/float64(s.GPUs)))}
			q = s.weight / m.seen
			paid = float64(s.on(kind))
		}
		if b == (buyer{}) {
			continue // takes nothing
		}
		sum := all[b]
		sum.q, sum.paid = sum.q+q, sum.paid+q*paid
		all[b] = sum
	}
	return all
}

func atMost(limit int, x float64) int { return int(math.Min(float64(limit), x)) }

func newTable(all buyers) *table {
	type offer struct {
		buyer
		q, paid float64
	}
	var offers []offer // in a fixed order, because sums of fractions depend on it
	for f := 0; f <= milliSteps; f++ {
		for x := 0; x <= cells; x++ {
			if b, ok := all[buyer{f, x}]; ok {
				offers = append(offers, offer{buyer{f, x}, b.q, b.paid})
			}
		}
	}
	t := new(table)
	for f := range t {
		for x := range t[f] {
			sold, offered := 0.0, closing
			for i := range offers {
				o := &offers[i]
				if o.f > f {
					break // and so are all that follow
				}
				if o.x <= x {
					sold += o.paid + o.q*float64(t[f-o.f][x-o.x])
					offered += o.q
				}
			}
			t[f][x] = float32(sold / offered)
		}
	}
	return t
}

// at returns the value of a GPU with so many thousandths free, rounded down to the
// grain of the table, and so many cells, between whole numbers of them linearly.
func (t *table) at(free int, x float64) float64 {
	row := &t[free/milliStep]
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
