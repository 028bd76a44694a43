package placement

import (
	"math"
	"testing"
)

func TestRunsOutAtItsLimits(t *testing.T) {
	for _, tt := range []struct {
		name                       string
		h, demand, squares, supply float64
		margin, variance           float64
		atLeast, atMost            float64
	}{
		{"no demand", 1, 0, 0, 100, 0, 0, 0, 0},
		{"no supply", 1, 100, 1000, 0, 0, 0, 0, 0},
		{"nothing free in the cluster", 0, 100, 1000, 100, 0, 0, 0, 0},
		{"far more demand than supply", 1, 1e6, 1e6, 1, 0, 0, 1, 1},
		{"far more supply than demand", 1, 1, 1, 1e6, 0, 0, 0, 0},
		{"as much of each", 1, 500, 1e6, 500, 0, 0, 0.5, 0.5},
		// h·demand − supply = 200·2 − 300 = 100; √(2·3·10000) = 244.95; Φ(0.40825) = 0.65845
		{"by hand", 2, 200, 10000, 300, 0, 0, 0.6584, 0.6585},
		// (4 − 5 + ½) ÷ √(1·2·4) = −0.17678; Φ = 0.42984
		{"by hand, in whole numbers", 1, 4, 4, 5, 0.5, 0, 0.4298, 0.4299},
		// (4 − 5 + 3) ÷ √(1·2·4 + 8) = 0.5; Φ = 0.69146
		{"by hand, with a margin", 1, 4, 4, 5, 3, 8, 0.6914, 0.6915},
	} {
		if got := runsOut(tt.h, tt.demand, tt.squares, tt.supply, tt.margin, tt.variance); !(got >= tt.atLeast && got <= tt.atMost) {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	// The same rate from fewer observations is less certain.
	if little, much := runsOut(100, 1, 1, 50, 0, 0), runsOut(1, 100, 100, 50, 0, 0); little >= much || little < 0.5 {
		t.Errorf("from few observations: %v, from many: %v", little, much)
	}
}

var (
	t4   = Kind{"T4", 2, Whole}
	p100 = Kind{"P100", 2, Whole}
)

func TestScarceModelsHaveAPrice(t *testing.T) {
	onlyP100 := Shape{GPUs: 1, Models: NewModels("P100", "gone")}
	w := NewWaste(mixOf(map[Shape]float64{onlyP100: 50, {GPUs: 1}: 50}), []Kind{t4, p100, t4})
	supply := NewSupply(w)
	for range 45 {
		supply.Add(node("T4", 0, 0, 1000, 1000))
	}
	for range 5 {
		supply.Add(node("P100", 0, 0, 1000, 1000))
	}
	prices := supply.Prices() // 100 GPUs for 100 pods: 50 want one of the 10 P100
	if scarce, plain := prices.model[w.index[p100]], prices.model[w.index[t4]]; scarce < 0.999 || plain != 0 {
		t.Errorf("a P100 costs %v, a T4 %v", scarce, plain)
	}
	if got := prices.Of(Shape{GPUs: 1, Share: 250}, Terms{kind: w.index[p100]}); got < 249*milli || got > 250*milli {
		t.Errorf("a quarter of a P100 costs %d", got)
	}
	for range 200 {
		supply.Add(node("P100", 0, 0, 1000, 1000))
	}
	if price := supply.Prices().model[w.index[p100]]; price > 0.001 {
		t.Errorf("with 410 P100 for half of 500 pods, one costs %v", price)
	}
}

func TestSetsOfModelsThatAreNoRestriction(t *testing.T) {
	w := NewWaste(mixOf(map[Shape]float64{
		{GPUs: 1, Share: 10, Models: NewModels("T4", "P100")}: 1,
		{GPUs: 1, Share: 20, Models: NewModels("gone")}:       1,
		{CPU: 1, Models: NewModels("T4")}:                     1,
	}), []Kind{t4, p100})
	if len(w.scarce) != 0 {
		t.Errorf("scarce: %+v", w.scarce)
	}
}

// offerOn rates a shape on a node with one offer.
func offerOn(t *testing.T, w *Waste, n *Node, s Shape) Offer {
	t.Helper()
	offers := w.Rate(n, s)
	if len(offers.All()) != 1 {
		t.Fatalf("%d offers", len(offers.All()))
	}
	return offers.All()[0]
}

// One node has four free GPUs, and pods request all four: a pod with one GPU costs the price of the
// slot, unless its GPU is not part of the slot.
func TestSlotsHaveAPrice(t *testing.T) {
	four, one := Shape{GPUs: 4}, Shape{GPUs: 1}
	kind := Kind{"T4", 6, Whole}
	w := NewWaste(mixOf(map[Shape]float64{four: 10, one: 0.001}), []Kind{kind})
	supply, n := NewSupply(w), node("T4", 0, 0, 1000, 1000, 1000, 1000, 1000, 1000)
	supply.Add(n)
	prices := supply.Prices()
	spare := prices.Of(one, offerOn(t, w, n, one).Terms)
	n.Take(Shape{GPUs: 2}, FirstFree)
	broken := prices.Of(one, offerOn(t, w, n, one).Terms)
	if spare >= broken || broken < 2000*milli || broken > 4000*milli {
		t.Errorf("one of 6 GPUs costs %d, one of the last 4 %d", spare, broken)
	}
	if got := prices.Of(four, offerOn(t, w, n, four).Terms); got != 0 {
		t.Errorf("a pod that uses the whole slot costs %d", got)
	}
}

// If pods end, a slot can come back: breaking it costs less the more of it stays, and taking the
// rest of it costs the remaining price.
func TestBrokenSlotsWhilePodsGo(t *testing.T) {
	four, one := Shape{GPUs: 4}, Shape{GPUs: 1}
	m := mixOf(map[Shape]float64{four: 1000, one: 0.001})
	m.departed = m.weights
	w := NewWaste(m, []Kind{{"T4", 4, Whole}})
	n, supply := node("T4", 0, 0, 1000, 1000, 1000, 1000), NewSupply(w)
	for range 10 {
		supply.Add(n)
	}
	prices := supply.Prices()
	if w.turnover != 1 {
		t.Fatalf("turnover is %v", w.turnover)
	}
	sum := 0.0
	want := []float64{1 - 9.0/16, 9.0/16 - 4.0/16, 4.0/16 - 1.0/16, 1.0 / 16}
	price := prices.slot[0]
	for i := range want {
		terms := offerOn(t, w, n, one).Terms
		got, _ := prices.broken(Terms{kind: terms.kind, whole: terms.whole, takes: terms.takes, breaks: terms.breaks & 1, charged: terms.charged & 1})
		if math.Abs(got-want[i]*price) > 1e-6 {
			t.Errorf("GPU %d costs %v of the slot, want %v", i, got/price, want[i])
		}
		sum += got
		n.Take(one, FirstFree)
	}
	if price < 1000 || math.Abs(sum-price) > 1e-6 {
		t.Errorf("the slot costs %v, its GPUs together %v", price, sum)
	}
}

// While pods come and go, slots are kept for as many more pods as may come at a time, which depends
// on how many usually run; and slots that only few of the large nodes could have cost up to twice as
// much. Otherwise, neither matters.
func TestSlotsThatAreKeptWhilePodsGo(t *testing.T) {
	four := Shape{CPU: 8000, GPUs: 4}
	price := func(departs bool, running, smaller int) Cost {
		m := mixOf(map[Shape]float64{four: 100, {GPUs: 1}: 100})
		if departs {
			m.departed = m.weights
		}
		w := NewWaste(m, []Kind{{"T4", 4, Whole}})
		supply, n := NewSupply(w), node("T4", 8000, 0, 1000, 1000, 1000, 1000)
		for range 60 {
			supply.Add(n)
		}
		for range running {
			supply.Add(node("T4", 8000, 0, 0, 0, 0, 0))
		}
		for range smaller {
			supply.Add(node("T4", 4000, 0, 0, 0, 0, 0))
		}
		return supply.Prices().Of(Shape{GPUs: 1}, offerOn(t, w, n, Shape{GPUs: 1}).Terms)
	}
	if few, many := price(false, 0, 0), price(false, 500, 1000); few != many || few == 0 {
		t.Errorf("if no pod ends, a slot costs %d, and %d beside other nodes", few, many)
	}
	few, many := price(true, 0, 0), price(true, 2000, 0)
	if many < few*11/10 {
		t.Errorf("a slot costs %d if no pods run, and %d if 500 do", few, many)
	}
	if rare := price(true, 500, 1500); rare < many*3/2 {
		t.Errorf("a slot that a quarter of the nodes could have costs %d, and %d if all could", rare, many)
	}
}

// A pod without GPUs pays for a slot for which it leaves too little CPU or memory beside the other
// pods without GPUs, even while the GPUs are in use, and only if pods end.
func TestPodsWithoutGPUsCrowdSlots(t *testing.T) {
	m := mixOf(map[Shape]float64{{CPU: 8000, Memory: 80, GPUs: 2}: 1, {CPU: 30000, GPUs: 3}: 1})
	still := NewWaste(m, []Kind{{"T4", 3, Whole}})
	m.departed = map[Shape]float64{{CPU: 8000, Memory: 80, GPUs: 2}: 1.25} // half of the 5 GPUs requested, in weight
	w := NewWaste(m, []Kind{{"T4", 3, Whole}})
	if w.turnover != 0.5 {
		t.Fatalf("turnover is %v", w.turnover)
	}
	n := &Node{Model: "T4", CPU: 3000, Memory: 30, CPUCapacity: 12000, MemoryCapacity: 100, PlainCPU: 2000, PlainMemory: 10, GPUs: []GPU{{0, Whole}, {0, Whole}, {0, Whole}}}
	for _, tt := range []struct {
		name  string
		shape Shape
		want  Cost
	}{
		{"leaves enough", Shape{CPU: 2000, Memory: 10}, 0},
		{"CPU", Shape{CPU: 2001}, OneGPU},
		{"memory", Shape{Memory: 11}, OneGPU},
		{"has a GPU", Shape{CPU: 2001, GPUs: 1}, 0},
	} {
		if got := w.crowding(n, 0, tt.shape); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
		if got := still.crowding(n, 0, tt.shape); got != 0 {
			t.Errorf("%s, and no pod ends: %d", tt.name, got)
		}
	}
	if offer := offerOn(t, w, n, Shape{CPU: 2001}); offer.Cost < OneGPU {
		t.Errorf("the offer costs %d", offer.Cost)
	}
	n.PlainCPU = 5000 // no slot fits any more
	if got := w.crowding(n, 0, Shape{CPU: 2001}); got != 0 {
		t.Errorf("without a slot: %d", got)
	}
}

// A pod without GPUs that takes CPU needed by a slot costs its price, and a pod that leaves enough
// CPU costs nothing.
func TestSlotsAreBrokenByCPUAndMemory(t *testing.T) {
	m := mixOf(map[Shape]float64{{CPU: 8000, Memory: 4096, GPUs: 2}: 100})
	w := NewWaste(m, []Kind{{"T4", 2, Whole}})
	n, supply := node("T4", 10000, 5000, 1000, 1000), NewSupply(w)
	supply.Add(n)
	prices := supply.Prices()
	for _, tt := range []struct {
		name  string
		shape Shape
		pays  bool
	}{{"little", Shape{CPU: 2000, Memory: 900}, false}, {"CPU", Shape{CPU: 2001}, true}, {"memory", Shape{Memory: 905}, true}} {
		if got := prices.Of(tt.shape, offerOn(t, w, n, tt.shape).Terms); (got > 0) != tt.pays {
			t.Errorf("%s: %d", tt.name, got)
		}
	}
	// The whole price, even if pods end: another free GPU of the slot does not reduce it.
	m.departed = m.weights
	w = NewWaste(m, []Kind{{"T4", 3, Whole}})
	n, supply = node("T4", 10000, 5000, 1000, 1000, 1000), NewSupply(w)
	supply.Add(n)
	prices = supply.Prices()
	if got, _ := prices.broken(offerOn(t, w, n, Shape{CPU: 9000}).Terms); w.turnover != 1 || got != prices.slot[0] {
		t.Errorf("taking the CPU of a slot costs %v, the slot %v", got, prices.slot)
	}
}

// Before the first pod, slots of 2, 4 and 8 GPUs already have a price.
func TestPricesBeforeAnythingIsLearnt(t *testing.T) {
	w := NewWaste(nil, []Kind{{"T4", 8, Whole}})
	n, supply := node("T4", 0, 0, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000), NewSupply(w)
	supply.Add(n)
	one := Shape{GPUs: 1}
	if got := supply.Prices().Of(one, offerOn(t, w, n, one).Terms); got < 1000*milli || got > 8000*milli {
		t.Errorf("breaking the only slot of 8 costs %d", got)
	}
}

// The supply equals the sum of what was added minus what was removed, in any order.
func TestSupplyFollowsTheNodes(t *testing.T) {
	w := NewWaste(mixOf(map[Shape]float64{{CPU: 1000, Memory: 10, GPUs: 2}: 1}), []Kind{t4, p100})
	a, b := node("T4", 3000, 100, 1000, 1000), node("P100", 900, 100, 1000, 300)
	moved, afresh := NewSupply(w), NewSupply(w)
	moved.Add(a)
	moved.Add(b)
	moved.Add(node("unknown", 3000, 100, 1000))
	moved.Remove(a)
	a.Take(Shape{CPU: 2500, GPUs: 1, Share: 100}, 1)
	moved.Add(a)
	afresh.Add(a)
	afresh.Add(b)
	copied := moved.Clone()
	moved.Remove(b)
	for i := range afresh.free {
		if copied.free[i] != afresh.free[i] {
			t.Errorf("free %v, want %v", copied.free, afresh.free)
		}
	}
	for i := range afresh.slots {
		if copied.slots[i] != afresh.slots[i] {
			t.Errorf("slots %v, want %v", copied.slots, afresh.slots)
		}
	}
}
