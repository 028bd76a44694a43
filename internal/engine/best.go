package engine

import (
	"context"
	"slices"

	"outboard.dev/outboard/internal/decision"
)

// Choice says among which nodes [Attempt.Best] chooses.
type Choice struct {
	// Rows are those of nodes of the View of the attempt, each once.
	Rows []int32
	// N is how many nodes to choose at most, 1 or more.
	N int
	// First is the index into Rows of the node that comes first among equally good ones; those after it, and then those before it, follow.
	// But if there are more of these than can be chosen, those chosen are spread over the zones.
	First int
	// Usable reports whether the node with the index into Rows may be chosen, for reasons that no policy knows. Best calls it for the better
	// nodes first, at most once for each. If stop is true, Best chooses no further nodes.
	Usable func(index int32) (usable, stop bool)
}

// index returns the index into Rows of the node at the position in the order of preference among equally good nodes.
func (c *Choice) index(position int32) int32 {
	at := int(position) + c.First
	if at >= len(c.Rows) {
		at -= len(c.Rows)
	}
	return int32(at)
}

// Best chooses the nodes with the largest totals of those on which the pod fits and that are usable. It sets result.Kept to their indices
// into c.Rows, the best first. Totals are those of Filter and Score of Engine for all nodes of the choice, and so is result.Record, with
// the chosen nodes as Returned and Top; its rejections have no nearest nodes if all results come from the cache. Call Best before Filter and Fits,
// after TakeNodeCache. The error is as for Filter of Engine.
func (a *Attempt) Best(ctx context.Context, c Choice, result *Result) error {
	if a.bestCached(&c, result) {
		return nil
	}
	all := slices.Grow(result.scratch.all[:0], len(c.Rows))
	rows := make([]int32, 0, len(c.Rows))
	for at := range c.Rows {
		row := c.Rows[c.index(int32(at))]
		all, rows = append(all, a.ev.view.At(int(row))), append(rows, row)
	}
	defer clear(all) // so that the nodes can be garbage-collected
	result.scratch.all = all
	req := Request{Pod: a.ev.pod, View: a.ev.view, Nodes: all, Rows: rows}
	err := a.engine.decide(ctx, req, a.ev, result, func(ev *evaluation) error {
		nodes := a.engine.withNominated(req, &result.scratch)
		if err := ev.filter(ctx, nodes, req.Nodes, result); err != nil {
			return err
		}
		result.Record.Fit = len(result.Kept)
		if _, err := ev.sum(ctx, nodes, result.Kept, result); err != nil {
			return err
		}
		chosen := c.choose(result, a.engine.zones.of(a.ev.view))
		if len(chosen) > 0 && len(ev.scorers) > 0 {
			ev.noteTop(nodes, result.Kept, chosen[:min(len(chosen), decision.TopNodes)], result)
		}
		result.keep(&c, chosen)
		return nil
	})
	// Filter counts from the beginning. It uses the cache, which decide has released.
	a.ev.resetOutcomes()
	a.signed = a.ev.signedFilters()
	a.TakeNodeCache()
	return err
}

// keep replaces result.Kept, which are positions, by the indices of those that are chosen from it.
func (r *Result) keep(c *Choice, chosen []int32) {
	for at, j := range chosen {
		chosen[at] = c.index(r.Kept[j])
	}
	r.Kept = append(r.Kept[:0], chosen...)
	r.Record.Returned = len(chosen)
}

// choose returns indices into result.Kept, which are positions in ascending order, and into the totals in the scratch memory, the best
// first.
func (c *Choice) choose(result *Result, zones zoneIDs) (chosen []int32) {
	totals, kept := result.scratch.totals, result.Kept
	ask := func(j int32) (stop bool) {
		usable, stop := c.Usable(c.index(kept[j]))
		if usable {
			chosen = append(chosen, j)
		}
		return stop || len(chosen) == c.N
	}
	best := top(totals, c.N, nil) // usually all of them are usable
	if len(best) < len(totals) {
		best = c.spread(best, totals, kept, zones)
	}
	for _, j := range best {
		if ask(j) {
			return chosen
		}
	}
	if len(best) == len(totals) {
		return chosen
	}
	cutoff := totals[best[len(best)-1]]
	better := func(a, b int32) bool { return totals[a] > totals[b] || totals[a] == totals[b] && a < b }
	// A heap of the others with the best one on top.
	heap := slices.Grow(result.scratch.best[:0], len(kept))
	for j := range kept {
		if totals[j] < cutoff || totals[j] == cutoff && !slices.Contains(best, int32(j)) {
			heap = append(heap, int32(j))
		}
	}
	result.scratch.best = heap
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
	for len(heap) > 0 {
		next := heap[0]
		heap[0] = heap[len(heap)-1]
		heap = heap[:len(heap)-1]
		down(0)
		if ask(next) {
			break
		}
	}
	return chosen
}
