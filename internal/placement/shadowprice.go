package placement

import (
	"cmp"
	"math"
	"slices"
)

const (
	// rounds is the number of corrections of the worths; the result is the mean over the last half.
	rounds = 400
	// correction is the size of the first correction.
	correction = 0.5
)

// A pod with 10 of 16 does not cost 10 sixteenths of a GPU if every pod that comes beside it
// requests 4: it costs what is left when that one is placed. worths are these prices: the solution
// of the dual of the cutting-stock problem (Gilmore and Gomory 1961),
//
//	maximize Σ demand·worth, so that no set of pods that fit one GPU is worth more than it
//
// With these prices, a GPU that can still be filled as well as any other has lost nothing, whatever
// its free thousandths.

// size is a number of steps of a GPU that some shapes request, with its frequency.
type size struct {
	steps  int
	demand float64 // number of requested GPUs
}

// stepsFor returns how many steps of a GPU of the kind the shape needs.
func stepsFor(s Shape, kind Kind, steps int) int {
	return int(math.Ceil(float64(s.units(kind)) / float64(max(1, kind.Size)) * float64(steps)))
}

// sizesOf returns the sizes that the mix requests of GPUs of the kind, in order.
func sizesOf(m *Mix, kind Kind, steps int) []size {
	var all []size
	for _, s := range m.shapes() {
		if s.GPUs > 0 && s.Models.Has(kind.Model) && s.units(kind) <= kind.Size {
			all = append(all, size{stepsFor(s.Shape, kind, steps), s.weight * float64(s.GPUs)})
		}
	}
	slices.SortStableFunc(all, func(a, b size) int { return cmp.Compare(a.steps, b.steps) })
	merged := all[:0]
	for _, s := range all {
		if n := len(merged); n > 0 && merged[n-1].steps == s.steps {
			merged[n-1].demand += s.demand
		} else if s.steps > 0 {
			merged = append(merged, s)
		}
	}
	return merged
}

// worths returns the worth of a pod by the number of steps that it requests, in GPUs: 0 to 1. Sizes
// that no pod requests are worth their share.
//
// It raises the worth of sizes of which the most valuable set of pods has too few for the demand,
// and lowers that of the others, in smaller and smaller corrections.
func worths(sizes []size, steps int) []float64 {
	worth := make([]float64, steps+1)
	for f := range worth {
		worth[f] = float64(f) / float64(steps)
	}
	if len(sizes) == 0 {
		return worth
	}
	now, sum := make([]float64, len(sizes)), make([]float64, len(sizes))
	for i, s := range sizes {
		now[i] = worth[s.steps]
	}
	for round := range rounds {
		most, counts := fill(sizes, now, steps)
		requested := 0.0
		for i, s := range sizes {
			now[i] /= most
			requested += s.demand * now[i]
		}
		step := correction / math.Sqrt(float64(round+1))
		for i, s := range sizes {
			if round >= rounds/2 {
				sum[i] += now[i]
			}
			now[i] *= math.Exp(step * (s.demand*now[i]/requested - float64(counts[i])*now[i]))
		}
	}
	for i, s := range sizes {
		worth[s.steps] = math.Min(1, sum[i]/(rounds-rounds/2))
	}
	return worth
}

// fill returns the value of the most valuable set of pods that fit on one GPU, and how many of each
// size are in it.
func fill(sizes []size, worth []float64, steps int) (value float64, counts []int) {
	best, last := make([]float64, steps+1), make([]int, steps+1) // by free steps
	for free := 1; free <= steps; free++ {
		best[free], last[free] = best[free-1], -1 // leave a step
		for i, s := range sizes {
			if s.steps > free {
				break // so are all that follow
			}
			if value := best[free-s.steps] + worth[i]; value > best[free] {
				best[free], last[free] = value, i
			}
		}
	}
	counts = make([]int, len(sizes))
	for free := steps; free > 0; {
		if i := last[free]; i >= 0 {
			counts[i]++
			free -= sizes[i].steps
		} else {
			free--
		}
	}
	return best[steps], counts
}
