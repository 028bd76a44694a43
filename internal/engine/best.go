package engine

import (
	"container/heap"
	"context"
	"slices"

	"outboard.dev/outboard/internal/decision"
)

// Choice says among which nodes [Cycle.Best] chooses.
type Choice struct {
	// Rows are those of nodes of the View of the Cycle, each once.
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
// into choice.Rows, the best first. Totals are those of Filter and Score for all nodes of the choice, and so is result.Record, with
// the chosen nodes as Returned and Top; its rejections have no nearest nodes if they can come from the cache. Call Best after
// TakeNodeCache. The error is as for Filter.
func (c *Cycle) Best(ctx context.Context, choice Choice, result *Result) error {
	s := &result.scratch
	s.all, s.asked = s.all[:0], s.asked[:0]
	for at := range choice.Rows {
		row := choice.Rows[choice.index(int32(at))]
		s.all, s.asked = append(s.all, c.view.At(int(row))), append(s.asked, row)
	}
	defer clear(s.all) // so that the nodes can be garbage-collected
	return c.decide(ctx, s.all, s.asked, result, func() error {
		if err := c.filter(ctx, result, c.cache != nil && !c.unsigned); err != nil {
			return err
		}
		if _, err := c.sum(ctx, result.Kept, result); err != nil {
			return err
		}
		chosen := choice.choose(result, c.engine.zones.of(c.view))
		if len(chosen) > 0 && len(c.scoring) > 0 {
			c.noteTop(result.Kept, chosen[:min(len(chosen), decision.TopNodes)], result)
		}
		result.keep(&choice, chosen)
		return nil
	})
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
	others := ranking{totals, slices.Grow(result.scratch.best[:0], len(kept))}
	for j := range kept {
		if totals[j] < cutoff || totals[j] == cutoff && !slices.Contains(best, int32(j)) {
			others.positions = append(others.positions, int32(j))
		}
	}
	result.scratch.best = others.positions
	for heap.Init(&others); others.Len() > 0; heap.Pop(&others) {
		if ask(others.positions[0]) {
			break
		}
	}
	return chosen
}

// ranking is a heap of positions with the best one on top.
type ranking struct {
	totals    []int64
	positions []int32
}

func (r *ranking) Len() int      { return len(r.positions) }
func (r *ranking) Swap(i, j int) { r.positions[i], r.positions[j] = r.positions[j], r.positions[i] }
func (r *ranking) Push(any)      {} // not called
func (r *ranking) Pop() any      { r.positions = r.positions[:r.Len()-1]; return nil }

func (r *ranking) Less(i, j int) bool {
	a, b := r.positions[i], r.positions[j]
	return r.totals[a] > r.totals[b] || r.totals[a] == r.totals[b] && a < b
}
