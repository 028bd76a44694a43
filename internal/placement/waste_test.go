package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Pods request 300 and 700: the best place for a pod with 300 is beside a 700, and not a place that
// leaves 400.
func TestWasteKeepsRoomForOtherShapes(t *testing.T) {
	small, large := Shape{GPUs: 1, Share: 300}, Shape{GPUs: 1, Share: 700}
	w := NewWaste(mixOf(map[Shape]float64{small: 1, large: 1}), []Kind{{"T4", 4, Whole}})
	offers := w.Rate(node("T4", 0, 0, 0, 700, 0, 300), small)
	if got := offers.All(); len(got) != 1 || got[0].GPU != 3 || got[0].Terms.takes != 0 || got[0].Cost > 0 {
		t.Errorf("offers %+v, want the last GPU at no cost", got)
	}
	offers = w.Rate(node("T4", 0, 0, 600, 1000, 1000), large)
	if got := offers.All(); len(got) != 0 { // the ranker has no node with three GPUs
		t.Errorf("a node of an unknown kind offers %+v", got)
	}
	offers = w.Rate(node("T4", 0, 0, 600, 1000, 900, 1000), large)
	if got := offers.All(); len(got) != 2 || got[0].GPU != 2 || got[1].GPU != 1 || got[1].Terms.takes != 1 {
		t.Errorf("offers %+v, want one on a GPU in use and one on the first that is not", got)
	}
	// 900 are worth (½·700 + ½·(300 + 582)) ÷ 1.01 = 783, and the remaining 200 nothing; what
	// remains of a whole GPU, 300, is worth nearly all of it.
	if got := offers.All(); got[0].Cost < 81*milli || got[0].Cost > 85*milli || got[1].Cost > 0 {
		t.Errorf("costs %d and %d", got[0].Cost, got[1].Cost)
	}
}

// With FirstFit, the only offer is the first GPU with room, at the cost of that GPU, whether it is
// in use or not.
func TestWasteFirstFit(t *testing.T) {
	small, large := Shape{GPUs: 1, Share: 300}, Shape{GPUs: 1, Share: 700}
	w := NewWaste(mixOf(map[Shape]float64{small: 1, large: 1}), []Kind{{"T4", 4, Whole}})
	for _, tt := range []struct {
		free  []int64
		gpu   int8
		takes int8
		waste bool
	}{
		{[]int64{0, 700, 0, 300}, 1, 0, true},
		{[]int64{0, 300, 0, 700}, 1, 0, false},
		{[]int64{200, 1000, 0, 300}, 1, 1, false},
	} {
		n := node("T4", 0, 0, tt.free...)
		n.FirstFit = true
		o := offerOn(t, w, n, small)
		if o.GPU != tt.gpu || o.Terms.takes != tt.takes || (o.Cost > 20*milli) != tt.waste {
			t.Errorf("%v: %+v", tt.free, o)
		}
		if n.Take(small, FirstFree); n.GPUs[o.GPU].Free != tt.free[o.GPU]-300 {
			t.Errorf("%v: the offer is GPU %d, and then is free: %v", tt.free, o.GPU, n.GPUs)
		}
	}
}

// With CPU for only one pod, no other pod can use a second GPU.
func TestWasteSeesCPU(t *testing.T) {
	s := Shape{CPU: 8000, GPUs: 1}
	w := NewWaste(mixOf(map[Shape]float64{s: 1}), []Kind{{"T4", 2, Whole}})
	heavy := Shape{CPU: 16000, GPUs: 1}
	modest := offerOn(t, w, node("T4", 16000, 0, 1000, 1000), s)
	costly := offerOn(t, w, node("T4", 16000, 0, 1000, 1000), heavy)
	if costly.Cost-modest.Cost < 900*milli {
		t.Errorf("taking all CPU costs %d, half of it %d", costly.Cost, modest.Cost)
	}
}

func TestOrder(t *testing.T) {
	below, last := 0, map[Cost]bool{}
	for i := range 1000 {
		cost := Order(fmt.Sprintf("node-%04d", i))
		if cost < 0 || cost >= orderSpan || cost != Order(fmt.Sprintf("node-%04d", i)) {
			t.Fatalf("node %d costs %d", i, cost)
		}
		if last[cost] = true; cost < orderSpan/4 {
			below++
		}
	}
	if below < 200 || below > 300 || len(last) < 900 {
		t.Errorf("%d of 1000 nodes are in the first quarter of the list, at %d places in all", below, len(last))
	}
}

// No data of nodes and pods causes a panic, or an offer for a place where the pod does not fit.
func TestHostileNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	numbers := []int64{-1 << 62, -1, 0, 1, 999, 1 << 20, 1<<63 - 1}
	pick := func() int64 { return numbers[rng.IntN(len(numbers))] }
	kinds := []Kind{{}, {"T4", 0, Whole}, {"T4", 1, Whole}, {"T4", MaxGPUs, Whole}}
	for range 3000 {
		shape := func() Shape {
			return Shape{CPU: max(0, pick()), Memory: max(0, pick()), GPUs: rng.IntN(3) * 32, Share: int64(rng.IntN(Whole))}
		}
		m := &Mix{weights: map[Shape]float64{shape(): 1, shape(): 1e-9}, seen: 1}
		if rng.IntN(10) == 0 {
			m = nil
		}
		kind := kinds[rng.IntN(len(kinds))]
		n := &Node{Model: kind.Model, CPU: pick(), Memory: pick(), CPUCapacity: pick(), MemoryCapacity: pick()}
		for range kind.GPUs {
			size := []int64{0, 1, Whole, 1 << 50}[rng.IntN(4)]
			n.GPUs = append(n.GPUs, GPU{rng.Int64N(size + 1), size})
		}
		s := shape()
		w := NewWaste(m, append([]Kind{n.Kind()}, kinds...)[rng.IntN(3):])
		supply := NewSupply(w)
		supply.Add(n)
		prices := supply.Prices()
		offers := w.Rate(n, s)
		for _, o := range offers.All() {
			prices.Of(s, o.Terms)
			if !n.Fits(s) {
				t.Fatalf("%+v is offered to %+v", n, s)
			}
		}
	}
}
