package snapshot

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Clone returns a copy of the Builder: what comes to one of them does not change what the other one publishes. Both share what is immutable,
// such as the current View.
func (b *Builder) Clone() Builder {
	c := *b
	c.nodes = cloneEach(b.nodes, func(n nodeState) nodeState {
		n.pods, n.pools = slices.Clone(n.pods), maps.Clone(n.pools)
		return n
	})
	c.budgets = cloneEach(b.budgets, func(of budgets) budgets {
		of.byName = maps.Clone(of.byName)
		return of
	})
	c.pods, c.pools, c.signals, c.nominated = maps.Clone(b.pods), maps.Clone(b.pools), maps.Clone(b.signals), maps.Clone(b.nominated)
	c.dirty, c.dirtyBudgets = maps.Clone(b.dirty), maps.Clone(b.dirtyBudgets)
	c.freeRows, c.rows = slices.Clone(b.freeRows), slices.Clone(b.rows)
	c.devices = b.devices.clone()
	c.journal = b.journal.clone()
	return c
}

// clone also limits the capacity of the events of the last History, to which the next one appends.
func (j journal) clone() journal {
	copies := map[*knownPod]*knownPod{} // events and known have the same ones
	clone := func(k *knownPod) *knownPod {
		if copies[k] == nil {
			copies[k] = new(*k)
		}
		return copies[k]
	}
	known := make(map[types.UID]*knownPod, len(j.known))
	for uid, k := range j.known {
		known[uid] = clone(k)
	}
	j.known, j.events = known, slices.Clone(j.events)
	for i := range j.events {
		j.events[i].knownPod = clone(j.events[i].knownPod)
	}
	j.specs, j.waiting = maps.Clone(j.specs), maps.Clone(j.waiting)
	for key, uids := range j.waiting {
		j.waiting[key] = uids.Clone()
	}
	if j.last != nil {
		last := *j.last
		last.Events = slices.Clip(last.Events)
		j.last = &last
	}
	return j
}

func cloneEach[K comparable, V any](of map[K]*V, clone func(V) V) map[K]*V {
	if of == nil {
		return nil
	}
	c := make(map[K]*V, len(of))
	for key, value := range of {
		next := clone(*value)
		c[key] = &next
	}
	return c
}
