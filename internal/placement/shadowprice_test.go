package placement

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestWorthsByHand(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sizes []size
		steps int
		// objective is Σ demand·worth, the minimum number of GPUs; low and high bound the worth of
		// the first size.
		objective, low, high float64
	}{
		{"a size that divides the GPU", []size{{2, 12}}, 8, 3, 0.25, 0.25},
		{"one that does not", []size{{3, 12}}, 8, 6, 0.5, 0.5},
		{"whole GPUs", []size{{8, 5}}, 8, 5, 1, 1},
		{"two that fill it together", []size{{3, 4}, {5, 4}}, 8, 4, 0, 0.5},
		// With 8 steps of 2: there are as many pods with 4 as with 10, and one fits beside each.
		{"4 and 10 of 16", []size{{2, 10}, {5, 10}}, 8, 10, 0, 0.25},
		// There are more small pods than fit beside the large ones: four share a GPU.
		{"many 4 and few 10", []size{{2, 50}, {5, 10}}, 8, 20, 0.25, 0.25},
	} {
		worth := worths(tt.sizes, tt.steps)
		sum := 0.0
		for _, s := range tt.sizes {
			sum += s.demand * worth[s.steps]
		}
		if got := worth[tt.sizes[0].steps]; math.Abs(sum-tt.objective) > 0.02*tt.objective || got < tt.low-0.01 || got > tt.high+0.01 {
			t.Errorf("%s: %.3f GPUs, the first is worth %.3f of one", tt.name, sum, got)
		}
	}
	for f, got := range worths(nil, 4) {
		if got != float64(f)/4 {
			t.Errorf("%d of 4 steps are worth %v without demand", f, got)
		}
	}
}

// For any demand, no set of pods that fits one GPU has a worth above 1, and worths are at least as
// good as fractions of GPUs.
func TestWorthsAreFeasible(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 3))
	for range 60 {
		steps, sizes := 4+rng.IntN(40), []size(nil)
		for f := 1; f <= steps; f++ {
			if rng.IntN(3) == 0 {
				sizes = append(sizes, size{f, 0.1 + rng.Float64()*10})
			}
		}
		if len(sizes) == 0 {
			continue
		}
		worth, parts, asked := worths(sizes, steps), 0.0, 0.0
		best := make([]float64, steps+1) // every set, by brute force
		for free := 1; free <= steps; free++ {
			for _, s := range sizes {
				if s.steps <= free {
					best[free] = max(best[free], best[free-s.steps]+worth[s.steps])
				}
			}
		}
		for _, s := range sizes {
			parts += s.demand * float64(s.steps) / float64(steps)
			asked += s.demand * worth[s.steps]
		}
		if best[steps] > 1.0001 || asked < 0.97*parts {
			t.Errorf("%v of %d: one GPU holds pods with a worth of %.4f; the demand is worth %.3f in total, as fractions %.3f", sizes, steps, best[steps], asked, parts)
		}
	}
}

// There are as many pods with 4 as with 10 of 16: a pod with 4 goes beside a 10, not to a place for
// two more, where no 10 would fit then.
func TestSmallPodsAreKeptForTheGaps(t *testing.T) {
	four, ten := Shape{GPUs: 1, Share: 4}, Shape{GPUs: 1, Share: 10}
	w := NewWaste(mixOf(map[Shape]float64{four: 1, ten: 1}), []Kind{{"T4", 3, 16}})
	n := &Node{Model: "T4", GPUs: []GPU{{16, 16}, {12, 16}, {6, 16}}}
	if got := w.Rate(n, four); len(got.All()) != 2 || got.All()[0].GPU != 2 || got.All()[0].Cost >= got.All()[1].Cost {
		t.Errorf("offers %+v", got)
	}
	// The best possible placement costs almost nothing, for any request.
	offers := w.Rate(&Node{Model: "T4", GPUs: []GPU{{16, 16}, {0, 16}, {0, 16}}}, ten)
	if got := offers.All(); len(got) != 1 || got[0].Cost < -100*milli || got[0].Cost > 100*milli {
		t.Errorf("a 10 on an empty GPU costs %+v", got)
	}
}
