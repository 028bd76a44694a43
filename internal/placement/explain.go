package placement

import (
	"fmt"
	"strconv"
)

// Explain explains the cost of an offer of the node for the shape, part by part, with s as it was
// when p was computed from it. order is the cost of the node's position.
func (s *Supply) Explain(p *Prices, n *Node, shape Shape, o Offer, order Cost) (said []string) {
	crowding := float64(s.waste.crowding(n, o.Terms.kind, shape)) / float64(OneGPU)
	lost, scarce := float64(o.Cost)/float64(OneGPU)-crowding, p.taken(shape, o.Terms)/Whole
	slots, dearest := p.broken(o.Terms)
	slots /= Whole
	position := float64(order) / float64(OneGPU)
	said = append(said, fmt.Sprintf("cost of the pod: %s GPUs (the lowest is best)", inGPUs(lost+crowding+scarce+slots+position)))
	waste := "the usual pods can use the node's free GPUs as well as before"
	switch {
	case inGPUs(lost) == inGPUs(0):
		lost = 0
	case lost > 0:
		waste = "so much of the node's free GPUs could no longer be allocated to the usual pods"
	default:
		waste = "the usual pods can use the node's free GPUs better than before"
	}
	said = append(said, fmt.Sprintf("waste: %s GPUs (%s)", inGPUs(lost), waste))
	if crowding > 0 {
		said = append(said, fmt.Sprintf("crowding: %s GPUs (a pod with several GPUs that fits beside the node's pods without GPUs would no longer fit)", inGPUs(crowding)))
	}
	if inGPUs(scarce) != inGPUs(0) {
		said = append(said, fmt.Sprintf("scarcity: %s GPUs (with a probability of %.2f, pods that can use no other model than %q will request all of it that is free)", inGPUs(scarce), p.model[o.Terms.kind], n.Model))
	}
	if inGPUs(slots) != inGPUs(0) {
		said = append(said, fmt.Sprintf("slots: %s GPUs (%s)", inGPUs(slots), s.explainSlots(p, n, shape, o.Terms, dearest)))
	}
	return append(said, fmt.Sprintf("order: %s GPUs (the node's position in the order in which equally good nodes are filled)", inGPUs(position)))
}

// explainSlots explains the price of slots of the group.
func (s *Supply) explainSlots(p *Prices, n *Node, shape Shape, t Terms, group int) string {
	g := &s.waste.groups[group]
	what := fmt.Sprintf("for pods with %d whole GPUs", g.gpus)
	if g.cpu > 0 {
		what += fmt.Sprintf(" and %s cores", strconv.FormatFloat(float64(g.cpu)/1000, 'f', -1, 64))
	}
	broken := g.slots(t.kind, n.CPU, n.Memory, int(t.whole)) - g.slots(t.kind, n.CPU-shape.CPU, n.Memory-shape.Memory, int(t.whole-t.takes))
	if broken == 0 {
		return fmt.Sprintf("uses a GPU that would be part of a slot %s once pods on the node end; the cluster has %d free slots", what, s.slots[group])
	}
	return fmt.Sprintf("uses up %d of the cluster's %d free slots %s; with a probability of %.2f, more slots will be requested than are free",
		broken, s.slots[group], what, p.slot[group]/(Whole*float64(g.gpus)*s.rarity(group)))
}

// inGPUs formats a cost in GPUs, without a negative zero.
func inGPUs(x float64) string {
	if x > -0.0005 && x < 0 {
		x = 0
	}
	return strconv.FormatFloat(x, 'f', 3, 64)
}
