package placement

// Account is the cost of an offer of [Waste], part by part, for explanations. Costs are in GPUs.
type Account struct {
	// Lost is how much less of the node can be allocated after the placement; it is negative if the
	// rest can be allocated better than before.
	Lost float64
	// Scarce is the price of GPUs for which other pods can use no other model.
	Scarce float64
	// Likely is the probability behind Scarce: that these pods will request all that is free.
	Likely float64
	// Slots is the price of GPUs from slots of whole GPUs, which pods with several GPUs need.
	Slots float64
	// Dearest are the slots behind Slots; nil if that is 0.
	Dearest *SlotAccount
}

// SlotAccount describes slots for pods with several whole GPUs.
type SlotAccount struct {
	GPUs        int   // of a slot
	CPU, Memory int64 // at least, in the units of Shape
	// Broken is how many slots are lost. If it is 0, the placement takes a GPU that would be part
	// of a slot once pods on the node end.
	Broken int
	// Free is how many slots the cluster has.
	Free int64
	// Likely is the probability that more slots will be requested than are free.
	Likely float64
}

// Account explains the cost of an offer of the node for the shape, with s as it was when p was
// computed from it.
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
