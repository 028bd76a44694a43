package placement

// Account is what an offer of [Waste] costs, part by part, for people. Costs are in GPUs.
type Account struct {
	// Lost is what could not be allocated any more; it is negative where what is left can be
	// allocated better than before.
	Lost float64
	// Scarce is for taking what pods need that can use no other model.
	Scarce float64
	// Likely is the probability behind Scarce: that these pods will want all there is.
	Likely float64
	// Slots is for taking from whole GPUs beside each other, which pods with several need.
	Slots float64
	// Dearest are the slots behind Slots; nil if that is 0.
	Dearest *SlotAccount
}

// SlotAccount is about places for pods with several whole GPUs.
type SlotAccount struct {
	GPUs        int   // that a slot has
	CPU, Memory int64 // that it has at least, in the units of Shape
	// Broken is how many are lost. With 0, a GPU is taken of those from which one
	// could be put together again when pods go.
	Broken int
	// Free is how many there are in the cluster.
	Free int64
	// Likely is the probability that more will be wanted than there are.
	Likely float64
}

// Account explains what an offer of the node for the shape costs, with s as it was
// when p was made from it.
func (s *Supply) Account(p *Prices, n *Node, shape Shape, o Offer) Account {
	a := Account{
		Lost:   float64(o.Cost) / float64(OneGPU),
		Scarce: p.taken(shape, o.Terms) / Whole,
		Likely: p.model[o.Terms.kind],
	}
	price, dearest := p.broken(o.Terms)
	if price == 0 {
		return a
	}
	g := &s.waste.groups[dearest]
	a.Slots = price / Whole
	a.Dearest = &SlotAccount{
		GPUs: g.gpus, CPU: g.cpu, Memory: g.memory, Free: s.slots[dearest], Likely: p.slot[dearest] / (Whole * float64(g.gpus)),
		Broken: g.slots(o.Terms.kind, n.CPU, n.Memory, int(o.Terms.whole)) -
			g.slots(o.Terms.kind, n.CPU-shape.CPU, n.Memory-shape.Memory, int(o.Terms.whole-o.Terms.takes)),
	}
	return a
}

// After is the fragmentation of the node once it has the shape on the GPU, or on the
