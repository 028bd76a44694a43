package engine

import (
	"errors"
	"math"
	"slices"
	"sync"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// trailLength is how many changes of nodes an Engine remembers for its indexes.
const trailLength = 1 << 12

// trail is the sequence of nodes that have changed from one View to the next, of the Views in which nodes were ranked. So an index can
// follow without its former View, which would keep nodes in memory. The zero value is ready to use.
type trail struct {
	mu         sync.Mutex
	view       *snapshot.View // the latest one; nil: none
	rows       [trailLength]int32
	first, end uint64 // the positions in the sequence of what is known; 0 is none
}

// since appends to rows the nodes that have changed since the position, and returns the position of the view, which becomes the latest one.
// ok is false if that is not known any more.
func (t *trail) since(position uint64, view *snapshot.View, rows []int32) (changed []int32, now uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.view == nil || t.view.NodeIndex() != view.NodeIndex():
		t.end++
		t.first = t.end
	case t.view != view:
		for n := range view.ChangedSince(t.view) {
			t.rows[t.end%trailLength] = int32(n.Row())
			t.end++
		}
	}
	t.view = view
	if position < t.first || t.end-position > trailLength {
		return rows, t.end, false
	}
	for ; position < t.end; position++ {
		rows = append(rows, t.rows[position%trailLength])
	}
	return rows, t.end, true
}

// index holds the totals of all nodes for one signature. It is a part of a nodeCache.
type index struct {
	// totals are by row: the total of the node; or -1-i if the pod does not fit there, where i is an index into rejections; or noNode.
	totals     []int32
	rejections []rejectedFor
	position   uint64 // in the trail; 0: totals are not valid
	changed    []int32
}

const noNode = math.MinInt32

// rejectedFor is an outcome without nodes.
type rejectedFor struct {
	member       int
	reason       *policy.Reason
	unresolvable bool
}

func (x *index) bytes() int { return cap(x.totals)*4 + cap(x.changed)*4 }

// errNotIndexed means that the total of a node depends on other nodes.
var errNotIndexed = errors.New("a policy has no opinion about a node")

// indexed reports whether the totals of nodes depend on the node and the signature alone.
func (a *Attempt) indexed() bool {
	return a.ev.cache != nil && a.signed && a.ev.claimants == nil && !a.ev.unsigned && !a.ev.leavesOut() &&
		!slices.ContainsFunc(a.ev.scorers, func(s scorerRef) bool { return s.slot < 0 })
}

// bestCached is Best with the index of the pod's signature. It returns false, and has done nothing, if the pod cannot have one.
func (a *Attempt) bestCached(c *Choice, result *Result) bool {
	if !a.indexed() {
		return false
	}
	ev, view := a.ev, a.ev.key.view
	x := &ev.cache.index
	if err := a.update(x); err != nil {
		x.position = 0
		return false
	}
	result.reset(a.engine.newRecord(Request{Pod: ev.pod, View: view}, false))
	ns := a.engine.nominations(view)
	s := &result.scratch
	s.totals = slices.Grow(s.totals[:0], len(c.Rows))
	result.Kept = slices.Grow(result.Kept, len(c.Rows))
	counts := make([]int, len(x.rejections)+len(ev.filters))
	for position := range c.Rows {
		row := c.Rows[c.index(int32(position))]
		total := x.totals[row]
		if ns != nil && ns.byRow[row] != nil {
			var err error
			if total, err = a.totalBeside(x, ns, view.At(int(row))); err != nil {
				x.position = 0
				return false
			}
		}
		if total >= 0 {
			result.Kept, s.totals = append(result.Kept, int32(position)), append(s.totals, int64(total))
		} else if total != noNode {
			for len(counts) < len(x.rejections) {
				counts = append(counts, 0)
			}
			counts[-1-total]++
		}
	}
	result.Record.Nodes, result.Record.Fit = len(c.Rows), len(result.Kept)
	result.Record.Policies, result.Record.MaxTotal = ev.policies(), ev.maxTotal
	chosen := c.choose(s.totals, result.Kept)
	ev.resetOutcomes()
	for i, n := range counts {
		if n > 0 {
			r := x.rejections[i]
			ev.outcomes[ev.outcome(r.member, r.reason, r.unresolvable)].nodes = n
		}
	}
	result.Record.Rejections = ev.rejections(nil)
	ev.resetOutcomes() // Filter counts from the beginning
	a.noteIndexed(c, ns, chosen[:min(len(chosen), decision.TopNodes)], result)
	result.keep(c, chosen)
	return true
}

// update brings the index up to date.
func (a *Attempt) update(x *index) error {
	view := a.ev.key.view
	changed, now, ok := a.engine.trail.since(x.position, view, x.changed[:0])
	x.changed = changed
	if !ok {
		x.totals = slices.Grow(x.totals[:0], view.Rows())[:view.Rows()]
		x.rejections = x.rejections[:0]
		x.changed = x.changed[:0]
		for row := range x.totals {
			x.changed = append(x.changed, int32(row))
		}
	}
	err := guard(itself, func() error {
		for _, row := range x.changed {
			n := view.At(int(row))
			if n == nil {
				x.totals[row] = noNode
				continue
			}
			total, err := a.totalOf(x, n, a.ev.cachedAt(n, int(row)))
			if err != nil {
				return err
			}
			x.totals[row] = total
		}
		return nil
	})
	if cap(x.changed) > trailLength/8 { // after all rows: another time there are few
		x.changed = nil
	}
	x.position = now
	return err
}

// totalOf returns what index.totals has for the node. cached is its entry in the cache, or nil.
func (a *Attempt) totalOf(x *index, n *snapshot.Node, cached *cachedNode) (int32, error) {
	ev := a.ev
	verdict, member, err := ev.rejection(ev.filters, n, cached != nil && cached.fits)
	if err != nil {
		return 0, err
	}
	if !verdict.Fits() {
		why := rejectedFor{member, verdict.Reason, verdict.Unresolvable}
		i := slices.Index(x.rejections, why)
		if i < 0 {
			i = len(x.rejections)
			x.rejections = append(x.rejections, why)
		}
		return int32(-1 - i), nil
	}
	if cached != nil {
		cached.fits = true
	}
	var total int64
	for i := range ev.scorers {
		score := ev.scoreAt(&ev.scorers[i], n, cached)
		if !inRange(score) {
			return 0, errNotIndexed // or invalid, which is reported without the index
		}
		total += ev.scorers[i].weight * score
	}
	return int32(total), nil
}

// totalBeside is totalOf for a node to which pods are nominated.
func (a *Attempt) totalBeside(x *index, ns *nominations, n *snapshot.Node) (total int32, err error) {
	err = guard(itself, func() error {
		with := ns.counting(n, a.ev.pod, false)
		if total, err = a.totalOf(x, with, nil); err != nil || total < 0 || with == n {
			return err
		}
		alone, err := a.totalOf(x, n, nil)
		if alone < 0 {
			total = alone
		}
		return err
	})
	return total, err
}

// noteIndexed records the best nodes, as noteTop does.
func (a *Attempt) noteIndexed(c *Choice, ns *nominations, best []int32, result *Result) {
	ev, view := a.ev, a.ev.key.view
	if len(best) == 0 || len(ev.scorers) == 0 {
		return
	}
	s := &result.scratch
	for _, j := range best {
		row := int(c.Rows[c.index(result.Kept[j])])
		n := view.At(row)
		scored := decision.ScoredNode{Node: n.Name, Total: s.totals[j]}
		with := ns.counting(n, ev.pod, false)
		for at := range ev.scorers {
			scorer := &ev.scorers[at]
			scored.Scores = append(scored.Scores, decision.Score{
				Policy: ev.members[scorer.member].Name, Score: ev.scoreAt(scorer, with, ev.cachedAt(with, row)), Weight: scorer.weight,
			})
		}
		result.Record.Top = append(result.Record.Top, scored)
	}
	for _, total := range s.totals {
		if total == s.totals[best[0]] {
			result.Record.Ties++
		}
	}
}
