package engine

import (
	"context"
	"slices"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/snapshot"
)

// Choice says among which nodes [Attempt.Best] chooses.
type Choice struct {
	// Nodes are nodes of the View of the attempt, each once, and Rows are their rows.
	Nodes []*snapshot.Node
	Rows  []int32
	// N is how many nodes to choose at most, 1 or more.
	N int
	// First is the index into Nodes of the node that comes first among equally good ones; those after it, and then those before it, follow.
	First int
	// Usable reports whether the node with the index may be chosen, for reasons that no policy knows. Best calls it for the better nodes
	// first, once for each, and for no more than it needs. If stop is true, Best chooses no further nodes.
	Usable func(index int32) (usable, stop bool)
}

// Best chooses the nodes with the largest totals of those on which the pod fits and that are usable. It sets result.Kept to their indices
// into c.Nodes, the best first. Totals are those of Filter and Score of Engine for all nodes of the choice, and so is result.Record, with
// the chosen nodes as Returned and Top. Call it before Filter and Fits. The error is as for Filter of Engine.
func (a *Attempt) Best(ctx context.Context, c Choice, result *Result) error {
	req := Request{Pod: a.ev.pod, View: a.ev.key.view, Nodes: c.Nodes, Rows: c.Rows}
	err := a.engine.decide(ctx, req, a.ev, false, result, func(ev *evaluation) error {
		nodes := a.engine.withNominated(req, &result.scratch)
		if err := ev.filter(ctx, nodes, req.Nodes, result); err != nil {
			return err
		}
		result.Record.Fit = len(result.Kept)
		totals, err := ev.sum(ctx, nodes, result.Kept, result)
		if err != nil {
			return err
		}
		chosen := c.choose(totals, result.Kept)
		if len(chosen) > 0 && len(ev.scorers) > 0 {
			ev.noteTop(nodes, result.Kept, chosen[:min(len(chosen), decision.TopNodes)], result)
		}
		for at, j := range chosen {
			chosen[at] = result.Kept[j]
		}
		result.Kept = append(result.Kept[:0], chosen...)
		result.Record.Returned = len(chosen)
		return nil
	})
	// Filter counts from the beginning. It uses the cache that decide has released.
	a.ev.resetOutcomes()
	a.signed = a.ev.signedFilters()
	a.UseCache()
	return err
}

// choose returns positions in totals and kept, the best first. kept are ascending indices into c.Nodes.
func (c *Choice) choose(totals []int64, kept []int32) []int32 {
	after := func(position int32) int { // how far the node is behind the first one
		d := int(kept[position]) - c.First
		if d < 0 {
			d += len(c.Nodes)
		}
		return d
	}
	better := func(a, b int32) bool {
		if totals[a] != totals[b] {
			return totals[a] > totals[b]
		}
		return after(a) < after(b)
	}
	// A heap with the best node on top: usually few nodes are needed.
	heap := make([]int32, len(kept))
	for j := range heap {
		heap[j] = int32(j)
	}
	down := func(at int) {
		for {
			child := 2*at + 1
			if child >= len(heap) {
				return
			}
			if child+1 < len(heap) && better(heap[child+1], heap[child]) {
				child++
			}
			if !better(heap[child], heap[at]) {
				return
			}
			heap[at], heap[child] = heap[child], heap[at]
			at = child
		}
	}
	for at := len(heap)/2 - 1; at >= 0; at-- {
		down(at)
	}
	var chosen []int32
	for len(heap) > 0 && len(chosen) < c.N {
		best := heap[0]
		heap[0] = heap[len(heap)-1]
		heap = heap[:len(heap)-1]
		down(0)
		usable, stop := c.Usable(kept[best])
		if usable {
			chosen = append(chosen, best)
		}
		if stop {
			break
		}
	}
	return slices.Clip(chosen)
}
