package placement

import (
	"cmp"
	"math"
	"slices"
)

const (
	// maxGroups is how many shapes with several GPUs have their own price: those that request the
	// most GPUs.
	maxGroups = 60
	// priorSlots is how many pods with 2, 4 and 8 GPUs are expected before any has come.
	priorSlots = 0.5
)

// scarce is a set of models to which some pods are restricted, with the requests of these pods and
// of those restricted to a part of the set.
type scarce struct {
	models          *models
	demand, squares float64 // Σ weight·thousandths, Σ weight·thousandths²
}

// slot is several whole GPUs of a node, with enough CPU and memory for a pod that requests them.
type slot struct {
	models      *models
	gpus        int
	cpu, memory int64
}

// group is a kind of slot, with the requests for it.
type group struct {
	slot
	demand, squares float64 // Σ weight·slots, Σ weight·slots²
}

// requests reports whether a pod that requests a slot of the group could have the shape.
func (w *Waste) requests(g *group, s Shape) bool {
	if s.GPUs <= 1 || s.GPUs < g.gpus || s.CPU < g.cpu || s.Memory < g.memory {
		return false
	}
	if known := w.limits[s.Models]; known != nil {
		return !known.none && known.within(g.models)
	}
	some := false
	for i, kind := range w.kinds {
		has := s.Models.Has(kind.Model)
		if some = some || has; has && !g.models.has[i] {
			return false
		}
	}
	return some
}

// any reports whether this much free CPU, memory and GPUs have a slot of the group.
func (g *group) any(kind int16, cpu, memory int64, whole int) bool {
	return whole >= g.gpus && (g.cpu == 0 || cpu >= g.cpu) && (g.memory == 0 || memory >= g.memory) && g.models.has[kind]
}

// slots returns how many slots of the group this much free CPU, memory and GPUs have.
func (g *group) slots(kind int16, cpu, memory int64, whole int) int {
	if !g.any(kind, cpu, memory, whole) {
		return 0 // as on most nodes, without a division
	}
	count := int64(whole / g.gpus)
	if g.cpu > 0 {
		count = min(count, cpu/g.cpu)
	}
	if g.memory > 0 {
		count = min(count, memory/g.memory)
	}
	return int(count)
}

// learnScarce finds the sets of models to which some pods are restricted.
func (w *Waste) learnScarce(shapes []weighted) {
	for _, s := range shapes {
		limit := w.limits[s.Models]
		if s.GPUs == 0 || limit.all || limit.none || slices.ContainsFunc(w.scarce, func(known scarce) bool { return known.models == limit }) {
			continue
		}
		one := scarce{models: limit}
		for _, other := range shapes {
			if of := w.limits[other.Models]; other.GPUs > 0 && !of.none && of.within(limit) {
				one.demand += other.weight * other.requested
				one.squares += other.weight * other.requested * other.requested
			}
		}
		w.scarce = append(w.scarce, one)
	}
}

// learnGroups finds the kinds of slots: the shapes with several GPUs that request the most, and any
// pod with 2, 4 or 8 GPUs.
func (w *Waste) learnGroups(shapes []weighted) {
	requested := map[slot]float64{}
	var slots []slot // in the order of the shapes, and then by requested GPUs
	for _, s := range shapes {
		if limit := w.limits[s.Models]; s.GPUs > 1 && !limit.none {
			of := slot{limit, s.GPUs, s.CPU, s.Memory}
			if _, known := requested[of]; !known {
				slots = append(slots, of)
			}
			requested[of] += s.weight * float64(s.GPUs)
		}
	}
	slices.SortStableFunc(slots, func(a, b slot) int { return cmp.Compare(requested[b], requested[a]) })
	for _, of := range slots[:min(len(slots), maxGroups)] {
		w.groups = append(w.groups, group{slot: of})
	}
	any := w.modelsOf(Models{})
	for _, gpus := range []int{8, 4, 2} {
		w.groups = append(w.groups, group{slot{models: any, gpus: gpus}, priorSlots, priorSlots})
	}
	for i := range w.groups {
		g := &w.groups[i]
		for _, s := range shapes {
			if w.requests(g, s.Shape) {
				slots := float64(s.GPUs) / float64(g.gpus)
				g.demand += s.weight * slots
				g.squares += s.weight * slots * slots
			}
		}
	}
}

// charged returns the groups of which the empty node could have slots, and to whose demand the
// shape itself does not belong.
func (w *Waste) charged(n *Node, kind int16, s Shape) uint64 {
	bits := uint64(0)
	for i := range w.groups {
		g := &w.groups[i]
		if g.any(kind, n.CPUCapacity, n.MemoryCapacity, len(n.GPUs)) && !w.requests(g, s) {
			bits |= 1 << i
		}
	}
	return bits
}

// breaking sets the groups of which the node has fewer slots afterwards.
func (w *Waste) breaking(n *Node, s Shape, t Terms) Terms {
	for i := range w.groups {
		g := &w.groups[i]
		if t.charged>>i&1 == 0 || !g.any(t.kind, n.CPU, n.Memory, int(t.whole)) {
			continue
		}
		if g.slots(t.kind, n.CPU-s.CPU, n.Memory-s.Memory, int(t.whole-t.takes)) < g.slots(t.kind, n.CPU, n.Memory, int(t.whole)) {
			t.breaks |= 1 << i
		}
	}
	return t
}

// Supply is the part of what is free in a cluster that prices depend on. It belongs to one
// goroutine.
type Supply struct {
	waste      *Waste
	free, used []int64 // by kind, in the unit of GPU
	slots      []int64 // by group
	// GPUs by group: of the nodes that could have a slot if they were empty, and of all nodes that
	// have enough GPUs for one.
	hosts, large []int64
}

// NewSupply returns an empty Supply for the prices of w.
func NewSupply(w *Waste) *Supply {
	kinds, groups := len(w.kinds), len(w.groups)
	return &Supply{w, make([]int64, kinds), make([]int64, kinds), make([]int64, groups), make([]int64, groups), make([]int64, groups)}
}

// Clone returns a copy.
func (s *Supply) Clone() *Supply {
	return &Supply{s.waste, slices.Clone(s.free), slices.Clone(s.used), slices.Clone(s.slots), slices.Clone(s.hosts), slices.Clone(s.large)}
}

// Add adds what is free of the node. Nodes of kinds unknown to the Waste do not count.
func (s *Supply) Add(n *Node) { s.change(n, 1) }

// Remove subtracts what Add has added. The node must not have changed since.
func (s *Supply) Remove(n *Node) { s.change(n, -1) }

func (s *Supply) change(n *Node, sign int64) {
	kind, known := s.waste.index[n.Kind()]
	if !known {
		return
	}
	for _, g := range n.GPUs {
		s.free[kind] += sign * g.Free
		s.used[kind] += sign * (g.Size - g.Free)
	}
	whole, gpus := wholes(n.GPUs), len(n.GPUs)
	for i := range s.waste.groups {
		g := &s.waste.groups[i]
		s.slots[i] += sign * int64(g.slots(kind, n.CPU, n.Memory, whole))
		if gpus >= g.gpus {
			s.large[i] += sign * int64(gpus)
		}
		if g.any(kind, n.CPUCapacity, n.MemoryCapacity, gpus) {
			s.hosts[i] += sign * int64(gpus)
		}
	}
}

// Prices are the prices of GPUs and slots that other pods need because they can use nothing else.
// They are immutable.
type Prices struct {
	waste *Waste
	model []float64 // by kind, per thousandth of a GPU, 0..1
	slot  []float64 // by group, in thousandths of a GPU
	dear  []int     // the groups with a price, the highest price first
}

// Prices returns the prices for the current supply.
func (s *Supply) Prices() *Prices {
	w, total, used := s.waste, 0.0, 0.0
	p := &Prices{waste: w, model: make([]float64, len(w.kinds)), slot: make([]float64, len(w.groups))}
	free := make([]float64, len(w.kinds)) // in thousandths of GPUs
	for i, kind := range w.kinds {
		free[i] = float64(s.free[i]) / float64(max(1, kind.Size)) * Whole
		total += free[i]
		used += float64(s.used[i]) / float64(max(1, kind.Size)) * Whole
	}
	// How many times the remembered requests fit into the free GPUs, and into those in use. Without
	// any, one pod with one GPU counts as remembered.
	h, running := total/Whole, 0.0
	if w.demand > 0 {
		h, running = total/w.demand, used/w.demand
	}
	for i := range w.scarce {
		one, left := &w.scarce[i], 0.0
		for kind, has := range one.models.has {
			if has {
				left += free[kind]
			}
		}
		price := runsOut(h, one.demand, one.squares, left, 0, 0)
		for kind, has := range one.models.has {
			if has {
				p.model[kind] = math.Max(p.model[kind], price)
			}
		}
	}
	for i := range w.groups {
		g, slots := &w.groups[i], float64(s.slots[i])
		if slots == 0 && w.turnover > 0 {
			slots = 1 // a slot may become free
		}
		// The number of pods that have a slot varies as pods come and go. Twice its standard
		// deviation is kept for them.
		have := running * g.demand
		margin := 2 * w.turnover * math.Sqrt(have)
		p.slot[i] = Whole * float64(g.gpus) * s.rarity(i) * runsOut(h, g.demand, g.squares, slots, 0.5+margin, w.turnover*have)
		if p.slot[i] > 0 {
			p.dear = append(p.dear, i)
		}
	}
	slices.SortStableFunc(p.dear, func(a, b int) int { return cmp.Compare(p.slot[b], p.slot[a]) })
	return p
}

// rarity returns the factor, 1 to 2, by which a slot of the group costs more because few nodes could
// have one: they become free less often.
func (s *Supply) rarity(group int) float64 {
	if s.large[group] == 0 {
		return 1
	}
	return 1 + s.waste.turnover*(1-float64(s.hosts[group])/float64(s.large[group]))
}

// runsOut returns the probability that the demand reaches the supply while h times the remembered
// requests come: the predictive distribution of a Poisson process whose rate is known only from
// what is remembered has the variance h·(1+h)·squares. margin and variance add to the demand.
func runsOut(h, demand, squares, supply, margin, variance float64) float64 {
	if demand == 0 || supply <= 0 || h <= 0 {
		return 0
	}
	return normal((h*demand - supply + margin) / math.Sqrt(h*(1+h)*squares+variance))
}

// normal returns the distribution function of the standard normal distribution.
func normal(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }

// Of returns the price to add to the cost of an offer with these terms for the shape.
func (p *Prices) Of(s Shape, t Terms) Cost {
	broken, _ := p.broken(t)
	return Cost(math.Round((p.taken(s, t) + broken) * float64(milli)))
}

// taken returns the price of the GPUs of the model, in thousandths.
func (p *Prices) taken(s Shape, t Terms) float64 {
	return p.model[t.kind] * float64(s.GPUs) * s.On(p.waste.kinds[t.kind])
}

// broken returns the highest price that a placement has for slots of one group, in thousandths; and
// the index of this group, if the price is not 0.
func (p *Prices) broken(t Terms) (highest float64, dearest int) {
	for _, i := range p.dear { // the highest price of a slot first
		if p.slot[i] <= highest {
			break
		}
		if t.charged>>i&1 == 0 {
			continue
		}
		if price := p.lost(i, t) * p.slot[i]; price > highest {
			highest, dearest = price, i
		}
	}
	return highest, dearest
}

// lost returns which part of a slot of the group a placement loses, from 0 to 1. A slot is worth 1.
// Unused GPUs that are not enough for a slot become one if pods on the node end: they are worth the
// square of their share of a slot, times the turnover.
func (p *Prices) lost(group int, t Terms) float64 {
	gpus, unused, left := p.waste.groups[group].gpus, int(t.whole), int(t.whole-t.takes)
	before, after := square(unused%gpus, gpus), square(left%gpus, gpus)
	switch breaks := t.breaks>>group&1 == 1; {
	case !breaks:
		return p.waste.turnover * max(0, before-after)
	case left >= unused/gpus*gpus: // for lack of CPU or memory: no GPU of the slot is taken
		return 1
	default:
		return 1 - p.waste.turnover*after
	}
}

// square returns (part/of)².
func square(part, of int) float64 {
	x := float64(part) / float64(of)
	return x * x
}
