package placement

import (
	"math/rand/v2"
	"testing"
)

var indexKinds = []Kind{{"T4", 2, Whole}, {"G2", 8, Whole}, {"P100", 1, Whole}, {}}

// market is a cluster with one way to rate its nodes.
type market struct {
	by      string
	nodes   []*Node
	learner *Learner
	waste   *Waste
}

func newMarket(by string, rng *rand.Rand) *market {
	m := &market{by: by}
	for range 40 {
		kind := indexKinds[rng.IntN(len(indexKinds))]
		n := &Node{Model: kind.Model, CPU: 32000, Memory: 64000, CPUCapacity: 32000, MemoryCapacity: 64000}
		for range kind.GPUs {
			n.GPUs = append(n.GPUs, GPU{Whole, Whole})
		}
		m.nodes = append(m.nodes, n)
	}
	m.learner = NewLearner(len(m.nodes))
	return m
}

// rate is how nodes are rated by what is learnt now.
func (m *market) rate() func(int, *Node, Shape) Offers {
	m.waste = NewWaste(m.learner.Mix(), indexKinds)
	switch fragmentation, bestFit := NewFragmentation(m.learner.Mix(), indexKinds), NewBestFit(32000, 8); m.by {
	case "best fit":
		return func(_ int, n *Node, s Shape) Offers { return bestFit.Rate(n, s) }
	case "fragmentation":
		return func(_ int, n *Node, s Shape) Offers { return fragmentation.Rate(n, s) }
	}
	waste := m.waste
	return func(place int, n *Node, s Shape) Offers { return waste.Rate(n, s).Plus(Order(string(rune(place)))) }
}

func (m *market) price(s Shape) func(Terms) Cost {
	if m.by != "waste" {
		return nil
	}
	supply := NewSupply(m.waste)
	for _, n := range m.nodes {
		supply.Add(n)
	}
	prices := supply.Prices()
	return func(terms Terms) Cost { return prices.Of(s, terms) }
}

// A cluster is filled and emptied at random, and prices and what is learnt change;
// the index finds what a look at all nodes finds.
func TestIndexAgainstALookAtAllNodes(t *testing.T) {
	shapes := []Shape{
		{CPU: 1000}, {CPU: 3000, Memory: 2000}, {CPU: 2000, GPUs: 1, Share: 250}, {CPU: 500, GPUs: 1, Share: 430},
		{CPU: 4000, Memory: 4000, GPUs: 1}, {CPU: 9000, GPUs: 2}, {CPU: 30000, GPUs: 8},
		{GPUs: 1, Share: 100, Models: NewModels("P100", "T4")}, {GPUs: 2, Share: 300},
	}
	type placed struct {
		node int
		s    Shape
		gpus []int
	}
	for _, by := range []string{"best fit", "fragmentation", "waste"} {
		t.Run(by, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, uint64(len(by))))
			m := newMarket(by, rng)
			rate := m.rate()
			index := NewIndex(m.nodes, rate)
			var running []placed
			var onTerms, refused int
			for step := range 1500 {
				if step%300 == 299 {
					rate = m.rate()
					index.Rerate(rate)
				}
				s := shapes[rng.IntN(len(shapes))]
				m.learner.Arrive(s)
				price := m.price(s)
				place, gpu, ok := index.Best(s, price)
				wantPlace, wantGPU, want := scan(m.nodes, s, rate, price)
				if place != wantPlace || gpu != wantGPU || ok != want {
					t.Fatalf("step %d: %+v goes to GPU %d of node %d (%v), should go to GPU %d of node %d (%v)", step, s, gpu, place, ok, wantGPU, wantPlace, want)
				}
				onTerms = max(onTerms, len(index.shapes[s].heaps))
				if ok {
					running = append(running, placed{place, s, m.nodes[place].Take(s, gpu)})
					index.Changed(place)
				} else {
					refused++
				}
				if rng.IntN(3) == 0 && len(running) > 0 {
					i := rng.IntN(len(running))
					m.nodes[running[i].node].Give(running[i].s, running[i].gpus)
					index.Changed(running[i].node)
					m.learner.Depart(running[i].s)
					running[i] = running[len(running)-1]
					running = running[:len(running)-1]
				}
			}
			if refused == 0 || refused == 1500 || by == "waste" && onTerms < 5 {
				t.Errorf("%d pods were refused, and there were offers on %d terms at most", refused, onTerms)
			}
		})
	}
}

func scan(nodes []*Node, s Shape, rate func(int, *Node, Shape) Offers, price func(Terms) Cost) (place, gpu int, ok bool) {
	var best Cost
	for i, n := range nodes {
		offers := rate(i, n, s)
		for _, o := range offers.All() {
			cost := o.Cost
			if price != nil {
				cost += price(o.Terms)
			}
			if !ok || cost < best {
				place, gpu, best, ok = i, int(o.GPU), cost, true
			}
		}
	}
	return place, gpu, ok
}

func BenchmarkRate(b *testing.B) {
	n := node("G2", 96000, 400000, 1000, 1000, 1000, 430, 250, 0, 0, 700)
	m := mixOf(map[Shape]float64{{CPU: 8000, GPUs: 1}: 40, {CPU: 6000, GPUs: 1, Share: 430}: 30, {CPU: 1000}: 20, {CPU: 64000, GPUs: 8}: 10})
	s := Shape{CPU: 6000, GPUs: 1, Share: 250}
	w, f, best := NewWaste(m, []Kind{{"G2", 8, Whole}}), NewFragmentation(m, []Kind{{"G2", 8, Whole}}), NewBestFit(96000, 8)
	for name, rate := range map[string]func(*Node, Shape) Offers{"waste": w.Rate, "fragmentation": f.Rate, "best fit": best.Rate} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				rate(n, s)
			}
		})
	}
}

func BenchmarkNewWaste(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 4))
	weights := map[Shape]float64{}
	for range 200 {
		weights[Shape{CPU: int64(1+rng.IntN(32)) * 1000, Memory: int64(rng.IntN(100)) * 1000, GPUs: 1, Share: int64(10 * (1 + rng.IntN(100)))}] = 1 + rng.Float64()*10
	}
	m := mixOf(weights)
	for b.Loop() {
		NewWaste(m, []Kind{{"T4", 2, Whole}, {"G2", 8, Whole}, {"P100", 1, Whole}})
	}
}
