package strategy

import (
	"fmt"
	"strconv"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/snapshot"
)

// Explain describes the cost of placing the pod on the node, or, if node is nil, what the strategy
// has learned; and returns the GPU of the node with the lowest cost, or [placement.FirstFree].
func (r *Ranking) Explain(n *snapshot.Node) (said []string, gpu int) {
	s := r.state
	if n == nil {
		return []string{fmt.Sprintf("%s: workload model of the first %d pods", s.ranker.options.Strategy.Name, s.model.after)}, placement.FirstFree
	}
	state := s.ranker.states.Of(n)
	offers := s.model.Rate(&state.node, r.shape)
	best, found := s.best(&offers, r.shape)
	if !found {
		return nil, placement.FirstFree
	}
	if s.model.Waste == nil {
		return nil, int(best.GPU)
	}
	for _, o := range offers.All() { // its cost before its price was added
		if o.GPU == best.GPU {
			best = o
		}
	}
	return s.explain(state, r.shape, best), int(best.GPU)
}

// explain describes the cost of an offer, without its price.
func (s *clusterState) explain(n *nodeState, shape placement.Shape, o placement.Offer) []string {
	a := s.supply.Account(s.prices, &n.node, shape, o)
	order := float64(n.order) / float64(placement.OneGPU)
	said := []string{fmt.Sprintf("cost of the pod: %s GPUs (the lowest is best)", gpus(a.Lost+a.Scarce+a.Slots+order))}
	switch {
	case gpus(a.Lost) == gpus(0):
		said = append(said, "waste: 0.000 GPUs (the usual pods can use the node's free GPUs as well as before)")
	case a.Lost > 0:
		said = append(said, fmt.Sprintf("waste: %s GPUs (so much of the node's free GPUs could no longer be allocated to the usual pods)", gpus(a.Lost)))
	default:
		said = append(said, fmt.Sprintf("waste: %s GPUs (the usual pods can use the node's free GPUs better than before)", gpus(a.Lost)))
	}
	if gpus(a.Scarce) != gpus(0) {
		said = append(said, fmt.Sprintf("scarcity: %s GPUs (with a probability of %.2f, pods that can use no other model than %q will request all of it that is free)", gpus(a.Scarce), a.Likely, n.node.Model))
	}
	if slots := a.Dearest; slots != nil && gpus(a.Slots) != gpus(0) {
		said = append(said, fmt.Sprintf("slots: %s GPUs (%s)", gpus(a.Slots), explainSlots(slots)))
	}
	return append(said, fmt.Sprintf("order: %s GPUs (the node's position in the order in which equally good nodes are filled)", gpus(order)))
}

func explainSlots(a *placement.SlotAccount) string {
	what := fmt.Sprintf("for pods with %d whole GPUs", a.GPUs)
	if a.CPU > 0 {
		what += fmt.Sprintf(" and %s cores", strconv.FormatFloat(float64(a.CPU)/1000, 'f', -1, 64))
	}
	if a.Broken == 0 {
		return fmt.Sprintf("uses a GPU that would be part of a slot %s once pods on the node end; the cluster has %d free slots", what, a.Free)
	}
	return fmt.Sprintf("uses up %d of the cluster's %d free slots %s; with a probability of %.2f, more slots will be requested than are free", a.Broken, a.Free, what, a.Likely)
}

// gpus formats a cost in GPUs, without a negative zero.
func gpus(x float64) string {
	if x > -0.0005 && x < 0 {
		x = 0
	}
	return strconv.FormatFloat(x, 'f', 3, 64)
}
