package strategies

import (
	"cmp"
	"math"
	"slices"

	"outboard.dev/outboard/internal/placement"
)

// typicalShare is the part of all pods that the typical shapes cover.
const typicalShare = 0.95

// Fragmentation is Fragmentation Gradient Descent, as published in "Beware of Fragmentation:
// Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC 2023): the cost
// of a place is the increase of the part of the node's free GPUs that typical pods cannot use. The
// cost is 0..100.
type Fragmentation struct {
	typical []weighted
	usable  map[string][]bool // by model: which of the typical shapes may use it
}

type weighted struct {
	placement.Shape
	weight float64
}

// NewFragmentation returns a Fragmentation whose typical pods are the most frequent shapes of the
// mix, up to 95 % of it.
func NewFragmentation(m *placement.Mix, kinds []placement.Kind) *Fragmentation {
	f := &Fragmentation{usable: map[string][]bool{}}
	var shapes []weighted
	all := 0.0
	for s, weight := range m.All() {
		shapes, all = append(shapes, weighted{s, weight}), all+weight
	}
	slices.SortStableFunc(shapes, func(a, b weighted) int { return cmp.Compare(b.weight, a.weight) })
	sum := 0.0
	for _, s := range shapes {
		if sum >= typicalShare*all {
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

// Of returns the fragmentation of a node: the free part of its GPUs that typical pods cannot use,
// in thousandths. For a pod without GPUs, and for one that does not fit, this is the whole free
// part; for others, the GPUs with too little room.
func (f *Fragmentation) Of(n *placement.Node) float64 { return f.of(n, n.CPU, n.GPUs) }

func (f *Fragmentation) of(n *placement.Node, cpu int64, gpus []placement.GPU) float64 {
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
				if g.Fits(s.Shape) {
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
	return sum / float64(size) * placement.Whole
}

// Rate returns the offer of the node with the GPU that is best on it.
func (f *Fragmentation) Rate(n *placement.Node, s placement.Shape) placement.Offers {
	var offers placement.Offers
	if !n.Fits(s) {
		return offers
	}
	before := f.Of(n)
	var buffer [placement.MaxGPUs]placement.GPU
	gpus := append(buffer[:0], n.GPUs...)
	rate := func(gpu int8) placement.Offer {
		gain := (before - f.of(n, n.CPU-s.CPU, gpus)) / placement.Whole
		return placement.Offer{Cost: 100 - placement.Cost(100/(1+math.Exp(-gain))), GPU: gpu}
	}
	if !s.Shares() {
		placement.TakeFirst(gpus, s)
		offers.Add(rate(placement.FirstFree))
		return offers
	}
	best := placement.Offer{Cost: math.MaxInt64}
	for i := range gpus {
		if !gpus[i].Fits(s) || slices.Contains(n.GPUs[:i], n.GPUs[i]) {
			continue
		}
		gpus[i].Take(s)
		if offer := rate(int8(i)); offer.Cost < best.Cost {
			best = offer
		}
		if gpus[i] = n.GPUs[i]; n.FirstFit {
			break
		}
	}
	offers.Add(best)
	return offers
}
