package placement

import (
	"cmp"
	"math"
	"slices"
)

// typicalShare is the part of all pods whose shapes are the typical ones.
const typicalShare = 0.95

// Fragmentation is Fragmentation Gradient Descent: a place is rated by how much more
// of the node's free GPUs typical pods cannot use afterwards. The cost is 0..100.
type Fragmentation struct {
	typical []weighted
	usable  map[string][]bool // by model: which of the typical shapes may use it
}

type weighted struct {
	Shape
	weight float64
	asked  float64 // of all GPUs together, in thousandths; see Waste
}

// NewFragmentation returns a Fragmentation whose typical pods are the most frequent
// shapes of the mix, as many as make up 95 % of it.
func NewFragmentation(m *Mix, kinds []Kind) *Fragmentation {
	f := &Fragmentation{usable: map[string][]bool{}}
	shapes := m.shapes()
	slices.SortStableFunc(shapes, func(a, b weighted) int { return cmp.Compare(b.weight, a.weight) })
	sum := 0.0
	for _, s := range shapes {
		if sum >= typicalShare*m.seen {
			break
		}
		sum += s.weight
		f.typical = append(f.typical, s)
	}
	for i := range f.typical {
		f.typical[i].weight /= sum
	}
	for _, kind := range kinds {
		allowed := make([]bool, len(f.typical))
		for i, s := range f.typical {
			allowed[i] = s.Models.Has(kind.Model)
		}
		f.usable[kind.Model] = allowed
	}
	return f
}

// Of is the fragmentation of a node: what typical pods cannot use of what is free of
// its GPUs, in thousandths. To a pod without GPUs, and to one that does not fit, all
// of it is fragments; to others, the GPUs with too little room.
func (f *Fragmentation) Of(n *Node) float64 { return f.of(n, n.CPU, n.GPUs) }

func (f *Fragmentation) of(n *Node, cpu int64, gpus []GPU) float64 {
	var total, size int64
	for _, g := range gpus {
		total, size = total+g.Free, max(size, g.Size)
	}
	if total == 0 {
		return 0
	}
	allowed, known := f.usable[n.Model]
	sum := 0.0
	for i := range f.typical {
		s := &f.typical[i]
		fragments := total
		if s.GPUs > 0 && s.CPU <= cpu && (known && allowed[i] || !known && s.Models.Has(n.Model)) {
			small, room := int64(0), 0
			for _, g := range gpus {
				if g.fits(s.Shape) {
					room++
				} else {
					small += g.Free
				}
			}
			if room >= s.GPUs {
				fragments = small
			}
		}
		sum += s.weight * float64(fragments)
	}
	return sum / float64(size) * Whole
}

// Rate returns the offer of the node with the GPU that is best on it.
func (f *Fragmentation) Rate(n *Node, s Shape) Offers {
	var offers Offers
	if !n.Fits(s) {
		return offers
	}
	before := f.Of(n)
	var buffer [MaxGPUs]GPU
	gpus := append(buffer[:0], n.GPUs...)
	rate := func(gpu int8) Offer {
		gain := (before - f.of(n, n.CPU-s.CPU, gpus)) / Whole
		return Offer{Cost: 100 - Cost(100/(1+math.Exp(-gain))), GPU: gpu}
	}
	if !s.Shares() {
		takeFirst(gpus, s)
		offers.add(rate(FirstFree))
		return offers
	}
	best := Offer{Cost: math.MaxInt64}
	for i := range gpus {
		if !gpus[i].fits(s) || slices.Contains(n.GPUs[:i], n.GPUs[i]) {
			continue
		}
		gpus[i].take(s)
		if offer := rate(int8(i)); offer.Cost < best.Cost {
			best = offer
		}
		gpus[i] = n.GPUs[i]
	}
	offers.add(best)
	return offers
}
