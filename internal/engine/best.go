package engine

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/snapshot"
)

// Choice says among which nodes [Cycle.Best] chooses.
type Choice struct {
	// Rows are those of nodes of the View of the Cycle, each once.
	Rows []int32
	// N is how many nodes to choose at most, 1 or more.
	N int
	// First is the index into Rows of the node that comes first among equally good ones; those
	// after it, and then those before it, follow. If there are more of these than can be chosen,
	// those chosen are spread over the zones.
	First int
	// Usable reports whether the node with the index into Rows may be chosen, for reasons that no
	// policy knows. Best calls it for the better nodes first, at most once for each. If stop is
	// true, Best chooses no further nodes.
	Usable func(index int32) (usable, stop bool)
}

// Best chooses the nodes with the largest totals of those on which the pod fits and that are
// usable. It sets result.Kept to their indices into choice.Rows, the best first. Totals are those
// of Filter and Score for all nodes of the choice, and so is result.Record, with the chosen nodes
// as Returned and Top; its rejections have no nearest nodes if they can come from the cache. Call
// Best after TakeNodeCache. The error is as for Filter.
func (c *Cycle) Best(ctx context.Context, choice Choice, result *Result) error {
	s := &result.scratch
	s.asked = append(append(s.asked[:0], choice.Rows[choice.First:]...), choice.Rows[:choice.First]...)
	s.all = slices.Grow(s.all[:0], len(s.asked))
	for _, row := range s.asked {
		s.all = append(s.all, c.view.At(int(row)))
	}
	defer clear(s.all) // so that the nodes can be garbage-collected
	return c.decide(ctx, s.all, s.asked, result, func() error {
		if err := c.filter(ctx, result, c.cache != nil && c.signedFilters); err != nil {
			return err
		}
		if _, err := c.sum(ctx, result.Kept, result); err != nil {
			return err
		}
		chosen := choice.choose(result, c.engine.zonesOf(c.view))
		if len(chosen) > 0 && len(c.scoring) > 0 {
			c.noteTop(result.Kept, chosen[:min(len(chosen), decision.TopNodes)], result)
		}
		for at, j := range chosen {
			chosen[at] = choice.index(result.Kept[j])
		}
		result.Kept, result.Record.Returned = append(result.Kept[:0], chosen...), len(chosen)
		return nil
	})
}

// index returns the index into Rows of the node at the position in the order of the request.
func (c *Choice) index(position int32) int32 { return (position + int32(c.First)) % int32(len(c.Rows)) }

// choose returns indices into result.Kept and the totals in the scratch memory, the best first.
func (c *Choice) choose(result *Result, zones *zones) (chosen []int32) {
	totals, kept := result.scratch.totals, result.Kept
	ask := func(j int32) (stop bool) {
		usable, stop := c.Usable(c.index(kept[j]))
		if usable {
			chosen = append(chosen, j)
		}
		return stop || len(chosen) == c.N
	}
	first := top(totals, c.N, nil) // usually all of them are usable
	if len(first) < len(totals) {
		c.spread(first, result, zones)
	}
	for _, j := range first {
		if ask(j) {
			return chosen
		}
	}
	for many, asked := c.N, 0; many < len(totals); {
		many *= 4
		best := top(totals, many, result.scratch.best)
		result.scratch.best = best
		for _, j := range best[asked:] {
			if !slices.Contains(first, j) && ask(j) {
				return chosen
			}
		}
		asked = len(best)
	}
	return chosen
}

// spread replaces the worst ones among the best, and those that are as good, by equally good nodes
// in zones of which the fewest are chosen.
func (c *Choice) spread(best []int32, result *Result, zones *zones) {
	totals, s := result.scratch.totals, &result.scratch
	zoneOf := func(j int32) int32 { return zones.ofRow[s.asked[result.Kept[j]]] }
	cutoff := totals[best[len(best)-1]]
	taken := make([]int, zones.count) // by zone
	full := 0                         // of these zones, how many have no use for more
	better := 0
	for ; totals[best[better]] > cutoff; better++ {
		taken[zoneOf(best[better])]++
	}
	type tie struct {
		position int32
		rank     int // how many of the zone come before
	}
	var ties []tie
	for j := 0; j < len(totals) && full < len(taken); j++ {
		if totals[j] != cutoff {
			continue
		}
		zone := zoneOf(int32(j))
		if rank := taken[zone]; rank < c.N {
			if taken[zone]++; taken[zone] == c.N {
				full++
			}
			ties = append(ties, tie{int32(j), rank})
		}
	}
	slices.SortStableFunc(ties, func(a, b tie) int { return a.rank - b.rank })
	for i := better; i < len(best); i++ {
		best[i] = ties[i-better].position
	}
}

// zones are numbers for the zones of nodes: the same for as long as no Node object changes. They
// are immutable. To read the zones of 5,000 equally good nodes takes more than twice as long as
// Best itself.
type zones struct {
	objects *snapshot.NodeObjects
	ofRow   []int32
	count   int
}

// zonesOf returns the zones of the nodes of the View. It keeps those of the latest View.
func (e *Engine) zonesOf(view *snapshot.View) *zones {
	if last := e.zones.Load(); last != nil && last.objects == view.NodeObjects() {
		return last
	}
	ofRow, known := make([]int32, view.Rows()), map[string]int32{}
	for n := range view.All() {
		zone := n.Object.Labels[corev1.LabelTopologyZone]
		if _, ok := known[zone]; !ok {
			known[zone] = int32(len(known))
		}
		ofRow[n.Row()] = known[zone]
	}
	next := &zones{view.NodeObjects(), ofRow, len(known)}
	e.zones.Store(next)
	return next
}
