package gpumemory

import (
	"fmt"
	"strconv"
	"strings"

	"outboard.dev/outboard/placement"
	"outboard.dev/outboard/snapshot"
)

// maxListed is how many GPUs of a node are listed one by one.
const maxListed = 16

// Explain implements policy.Explainer.
func (c *cycle) Explain(n *snapshot.Node) []string { return c.wouldGet(n, placement.FirstFree) }

// Explain implements policy.Explainer.
func (r *ranking) Explain(n *snapshot.Node) []string {
	said, _ := r.explain(n)
	return said
}

// Explain implements policy.Explainer.
func (c *rankedCycle) Explain(n *snapshot.Node) []string {
	rated, gpu := c.explain(n)
	if n != nil && !c.Filter(n).Fits() {
		rated = nil // it is not among those that are compared
	}
	return append(c.wouldGet(n, gpu), rated...)
}

// wouldGet says which GPUs of the node the pod would get, given the one that is preferred,
// or what is free of them when it fits on none.
func (c *fitting) wouldGet(n *snapshot.Node, preferred int) []string {
	if n == nil || c.request.refused != nil {
		return nil
	}
	b := c.policy.books.Of(n)
	verdict := c.policy.judge(c.request, n, b)
	switch {
	case b.holds(c.pod):
		return []string{"The pod has its GPUs here already."}
	case b.problem != nil || verdict.Reason == wrongModel:
		return nil
	case verdict.Fits():
		return []string{"The pod would get " + c.policy.listed(b, c.policy.choose(c.request, b, preferred)) + "."}
	}
	all := make([]int, len(b.cards))
	for i := range all {
		all[i] = i
	}
	return []string{"The node has " + c.policy.listed(b, all) + "."}
}

// listed tells what is free of the GPUs with these indexes.
func (p *gpuMemory) listed(b *books, indexes []int) string {
	var text []string
	for _, i := range indexes {
		if len(text) == maxListed {
			text = append(text, fmt.Sprintf("and %d more", len(indexes)-maxListed))
			break
		}
		c := b.cards[i]
		if !c.healthy {
			text = append(text, fmt.Sprintf("GPU %d (unhealthy)", i))
			continue
		}
		text = append(text, fmt.Sprintf("GPU %d (free: %d of %d %s)", i, c.free(), c.capacity, p.config.Unit))
	}
	return strings.Join(text, ", ")
}

// explain says what it costs to place the pod on the node, and on which GPU that is
// best.
func (r *ranking) explain(n *snapshot.Node) (said []string, gpu int) {
	m := r.market
	if n == nil {
		return m.explain(), placement.FirstFree
	}
	p, s := m.placer.policy, r.query.shape
	b := p.books.Of(n)
	room := *m.placer.rooms.Of(n)
	offers := m.lesson.rate(&room.node, s)
	best, found := m.best(&offers, s)
	if !found || b.holds(r.pod) {
		return nil, placement.FirstFree
	}
	gpu = int(best.GPU)
	switch {
	case m.lesson.waste != nil:
		for _, o := range offers.All() { // as it was before its price was added
			if o.GPU == best.GPU {
				best = o
			}
		}
		return m.explainWaste(room, s, best), gpu
	case m.lesson.fragmentation != nil:
		f := m.lesson.fragmentation
		return []string{fmt.Sprintf("Typical pods cannot use %.2f GPUs of what is free here, and with this pod %.2f.",
			f.Of(&room.node)/placement.Whole, f.After(&room.node, s, gpu)/placement.Whole)}, gpu
	}
	after := placement.Node{CPU: room.node.CPU, Memory: room.node.Memory, GPUs: append([]placement.GPU(nil), room.node.GPUs...)}
	after.Take(s, gpu)
	return []string{fmt.Sprintf("%.1f of %.1f cores and %.2f of %d GPUs would be left: the less, the better.",
		float64(after.CPU)/1000, float64(room.node.CPUCapacity)/1000, after.FreeGPUs(), len(after.GPUs))}, gpu
}

// explain says what the strategy knows.
func (m *market) explain() []string {
	if m.lesson.waste == nil && m.lesson.fragmentation == nil {
		return nil
	}
	return []string{fmt.Sprintf("%s: which pods are usual was learnt from the first %d that came.", m.placer.policy.config.ScoreNodes, m.lesson.after)}
}

// explainWaste accounts for the cost of an offer without its price.
func (m *market) explainWaste(r *room, s placement.Shape, o placement.Offer) []string {
	a := m.supply.Account(m.prices, &r.node, s, o)
	order := float64(r.order) / float64(placement.OneGPU)
	said := []string{fmt.Sprintf("Placing the pod here costs %s GPUs; the least is best:", gpus(a.Lost+a.Scarce+a.Slots+order))}
	switch {
	case gpus(a.Lost) == gpus(0):
		said = append(said, "0.000: what is left can be sold as well as before.")
	case a.Lost > 0:
		said = append(said, fmt.Sprintf("%s: as much of the node's GPUs could not be sold any more to the pods that usually come.", gpus(a.Lost)))
	default:
		said = append(said, fmt.Sprintf("%s: what is left can be sold better than before.", gpus(a.Lost)))
	}
	if gpus(a.Scarce) != gpus(0) {
		said = append(said, fmt.Sprintf("%s: the model %q is scarce: with a probability of %.2f pods that can use no other will want all that is free.", gpus(a.Scarce), r.node.Model, a.Likely))
	}
	if slots := a.Dearest; slots != nil && gpus(a.Slots) != gpus(0) {
		said = append(said, gpus(a.Slots)+": "+explainSlots(slots))
	}
	return append(said, fmt.Sprintf("%s: the node's place in the order in which equally good ones are filled.", gpus(order)))
}

func explainSlots(a *placement.SlotAccount) string {
	what := fmt.Sprintf("for pods with %d whole GPUs", a.GPUs)
	if a.CPU > 0 {
		what += fmt.Sprintf(" and %s cores", strconv.FormatFloat(float64(a.CPU)/1000, 'f', -1, 64))
	}
	if a.Broken == 0 {
		return fmt.Sprintf("takes a GPU from which a place %s could be put together again when pods go; the cluster has %d.", what, a.Free)
	}
	return fmt.Sprintf("breaks %d of the cluster's %d places %s, of which more will be wanted than there are with a probability of %.2f.", a.Broken, a.Free, what, a.Likely)
}

// gpus is a cost in GPUs as people read it, without a negative zero.
func gpus(x float64) string {
	if x > -0.0005 && x < 0 {
		x = 0
	}
	return strconv.FormatFloat(x, 'f', 3, 64)
}
