package engine

import (
	"math"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// zones are the zones of the nodes of the View that was asked about last. The zero value is ready to use.
type zones struct {
	mu    sync.Mutex
	view  *snapshot.View   // nil: none yet
	ids   []int16          // by row; immutable
	known map[string]int16 // by the name of the zone
}

// zoneIDs are numbers for the zones of nodes, which must not be changed.
type zoneIDs struct {
	of    []int16 // by row
	count int     // all are below
}

// of returns those of the nodes of the View.
func (z *zones) of(view *snapshot.View) zoneIDs {
	z.mu.Lock()
	defer z.mu.Unlock()
	last := z.view
	z.view = view
	switch {
	case last == view:
	case last != nil && last.NodeIndex() == view.NodeIndex():
		for n := range view.ChangedSince(last) {
			if id := z.id(n); z.ids[n.Row()] != id {
				z.ids = slices.Clone(z.ids)
				z.ids[n.Row()] = id
			}
		}
	default:
		z.ids, z.known = make([]int16, view.Rows()), map[string]int16{}
		for n := range view.All() {
			z.ids[n.Row()] = z.id(n)
		}
	}
	return zoneIDs{z.ids, min(len(z.known), math.MaxInt16+1)}
}

// id returns the number of the zone; all zones after too many are the same.
func (z *zones) id(n *snapshot.Node) int16 {
	zone := n.Object.Labels[corev1.LabelTopologyZone]
	id, known := z.known[zone]
	if !known {
		id = int16(min(len(z.known), math.MaxInt16))
		z.known[zone] = id
	}
	return id
}

// spread returns the best positions instead of those in best, which are as many as to choose. Of the worst ones among them, and those that are
// as good, it takes the positions in zones of which the fewest are chosen.
func (c *Choice) spread(best []int32, totals []int64, kept []int32, zones zoneIDs) []int32 {
	cutoff := totals[best[len(best)-1]]
	taken := make([]int, zones.count) // by zone
	full := 0                         // of these zones, how many have no use for more
	zoneOf := func(j int32) int16 { return zones.of[c.Rows[c.index(kept[j])]] }
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
	return best
}
