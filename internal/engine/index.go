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
	// totals are by row: the sum of the scores that depend on the node alone, each times its weight; or -1-i if the pod does not fit there,
	// where i is an index into rejections; or noNode.
	totals     []int32
	rejections []rejectedFor
	columns    []column // by scorer
	position   uint64   // in the trail; 0: totals are not valid
	changed    []int32
	some       []int64 // the scores of one node, by scorer
}

// column says where the scores of a policy are.
type column struct {
	// relative is true if they depend on the scores of other nodes, because the policy normalizes or has no opinion about some: then they
	// are not in the totals.
	relative bool
	scores   []int64 // if relative: by row, as Score returned them. Nil if the policy scores all rows together.
}

const noNode = math.MinInt32

// rejectedFor is an outcome without nodes.
type rejectedFor struct {
	member       int
	reason       *policy.Reason
	unresolvable bool
}

func (x *index) bytes() int {
	bytes := cap(x.totals)*4 + cap(x.changed)*4
	for i := range x.columns {
		bytes += cap(x.columns[i].scores) * 8
	}
	return bytes
}

// errOpinion means that a column became relative, so that the index must be made again.
var errOpinion = errors.New("a policy has no opinion about a node")

// errScore means that a score is invalid, which is reported without the index.
var errScore = errors.New("a score is invalid")

// indexed reports whether all that the policies say about a node depends on the node and the signature alone, before scores are compared.
func (a *Attempt) indexed() bool { return a.ev.cache != nil && !a.ev.unsigned && !a.ev.leavesOut() }

// bestCached is Best with the index of the pod's signature. It returns false, and has done nothing, if the pod cannot have one, or a policy
// fails.
func (a *Attempt) bestCached(c *Choice, result *Result) bool {
	if !a.indexed() {
		return false
	}
	ev, view := a.ev, a.ev.view
	x := &ev.cache.index
	result.reset(a.engine.newRecord(Request{Pod: ev.pod, View: view}))
	ns := a.engine.nominations(view)
	var counts []int
	err := guard(itself, func() error {
		err := a.update(x)
		for errors.Is(err, errOpinion) { // at most once for each policy
			err = a.update(x)
		}
		if err == nil {
			counts, err = a.rank(c, x, ns, result)
		}
		return err
	})
	if err != nil {
		x.position = 0
		return false
	}
	result.Record.Nodes, result.Record.Fit = len(c.Rows), len(result.Kept)
	result.Record.Policies, result.Record.MaxTotal = ev.policies(), ev.maxTotal
	chosen := c.choose(result, a.engine.zones.of(view))
	ev.resetOutcomes()
	for i, n := range counts {
		if n > 0 {
			r := x.rejections[i]
			ev.outcomes[ev.outcome(r.member, r.reason, r.unresolvable)].nodes = n
		}
	}
	result.Record.Rejections = ev.rejections(nil)
	ev.resetOutcomes() // Filter counts from the beginning
	a.noteIndexed(c, x, ns, chosen[:min(len(chosen), decision.TopNodes)], result)
	result.keep(c, chosen)
	return true
}

// apart holds the scores of a node to which pods are nominated, which are not in the index.
type apart struct {
	kept   int // its index in result.Kept
	scores []int64
}

// rank sets result.Kept to the positions of the nodes that fit, and the totals to theirs. It returns how many of the others there are for
// each of the index's rejections.
func (a *Attempt) rank(c *Choice, x *index, ns *nominations, result *Result) (counts []int, err error) {
	s, n, fit := &result.scratch, len(c.Rows), 0
	totals, kept := slices.Grow(s.totals[:0], n)[:n], slices.Grow(result.Kept[:0], n)[:n]
	counts = make([]int, len(x.rejections))
	var others []apart
	for position := range c.Rows {
		row := c.Rows[c.index(int32(position))]
		total := x.totals[row]
		if ns != nil && ns.byRow[row] != nil {
			other := apart{fit, make([]int64, len(a.ev.scorers))}
			if total, err = a.totalBeside(x, ns, a.ev.view.At(int(row)), other.scores); err != nil {
				return nil, err
			}
			if total >= 0 {
				others = append(others, other)
			}
		}
		if total >= 0 {
			kept[fit], totals[fit] = int32(position), int64(total)
			fit++
		} else if total != noNode {
			for len(counts) < len(x.rejections) {
				counts = append(counts, 0)
			}
			counts[-1-total]++
		}
	}
	result.Kept, s.totals = kept[:fit], totals[:fit]
	return counts, a.addRelative(c, x, others, result)
}

// addRelative adds to the totals of the nodes that fit the scores that depend on each other.
func (a *Attempt) addRelative(c *Choice, x *index, others []apart, result *Result) error {
	ev, s := a.ev, &result.scratch
	if len(result.Kept) == 0 || !slices.ContainsFunc(x.columns, func(col column) bool { return col.relative }) {
		return nil
	}
	s.rows = slices.Grow(s.rows[:0], len(result.Kept))
	for _, position := range result.Kept {
		s.rows = append(s.rows, c.Rows[c.index(position)])
	}
	for len(s.scores) < len(ev.scorers) {
		s.scores = append(s.scores, nil)
	}
	for at := range ev.scorers {
		scorer, col := &ev.scorers[at], &x.columns[at]
		if !col.relative {
			continue
		}
		scores := slices.Grow(s.scores[at][:0], len(s.rows))[:len(s.rows)]
		s.scores[at] = scores
		if scorer.rows != nil {
			scorer.rows.ScoreRows(s.rows, scores)
		} else {
			for j, row := range s.rows {
				scores[j] = col.scores[row]
			}
		}
		for _, other := range others {
			scores[other.kept] = other.scores[at]
		}
		if err := scorer.finish(scores, s, func(int) string { return "" }); err != nil {
			return err
		}
		scorer.addTo(s.totals, scores)
	}
	return nil
}

// update brings the index up to date. After errOpinion, call it again.
func (a *Attempt) update(x *index) error {
	view := a.ev.view
	changed, now, ok := a.engine.trail.since(x.position, view, x.changed[:0])
	x.changed = changed
	if !ok {
		a.begin(x)
	}
	for _, row := range x.changed {
		n := view.At(int(row))
		if n == nil {
			x.totals[row] = noNode
			continue
		}
		total, err := a.totalOf(x, n, a.ev.cachedAt(n, int(row)), x.some)
		if err != nil {
			x.position = 0
			return err
		}
		x.totals[row] = total
		for at := range x.columns {
			if scores := x.columns[at].scores; scores != nil {
				scores[row] = x.some[at]
			}
		}
	}
	if cap(x.changed) > trailLength/8 { // after all rows: another time there are few
		x.changed = nil
	}
	x.position = now
	return nil
}

// begin makes the index forget all nodes, and regards all rows as changed.
func (a *Attempt) begin(x *index) {
	rows, scorers := a.ev.view.Rows(), a.ev.scorers
	x.totals = slices.Grow(x.totals[:0], rows)[:rows]
	x.rejections = x.rejections[:0]
	x.changed = x.changed[:0]
	for row := range x.totals {
		x.changed = append(x.changed, int32(row))
	}
	if len(x.columns) != len(scorers) {
		x.columns, x.some = make([]column, len(scorers)), make([]int64, len(scorers))
	}
	for at := range scorers {
		col := &x.columns[at]
		col.relative = col.relative || scorers[at].normalize != nil || scorers[at].rows != nil
		if col.relative && scorers[at].rows == nil {
			col.scores = slices.Grow(col.scores[:0], rows)[:rows]
		}
	}
}

// totalOf returns what index.totals has for the node. cached is its entry in the cache, or nil. It sets those of scores that are relative,
// except those of policies that score the rows of a View together, unless the node is another one than in the View.
func (a *Attempt) totalOf(x *index, n *snapshot.Node, cached *cachedNode, scores []int64) (int32, error) {
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
	for at := range ev.scorers {
		scorer, col := &ev.scorers[at], &x.columns[at]
		if col.relative && scorer.rows != nil && cached != nil {
			continue
		}
		score := ev.scoreAt(scorer, n, cached)
		switch {
		case col.relative:
			scores[at] = score
		case score == policy.NoOpinion:
			col.relative = true
			return 0, errOpinion
		case !inRange(score):
			return 0, errScore
		default:
			total += scorer.weight * score
		}
	}
	return int32(total), nil
}

// totalBeside is totalOf for a node to which pods are nominated.
func (a *Attempt) totalBeside(x *index, ns *nominations, n *snapshot.Node, scores []int64) (total int32, err error) {
	with := ns.counting(n, a.ev.pod, false)
	if total, err = a.totalOf(x, with, nil, scores); err != nil || total < 0 || with == n {
		return total, err
	}
	alone, err := a.totalOf(x, n, nil, slices.Clone(scores))
	if alone < 0 {
		total = alone
	}
	return total, err
}

// noteIndexed records the best nodes, as noteTop does.
func (a *Attempt) noteIndexed(c *Choice, x *index, ns *nominations, best []int32, result *Result) {
	ev, view := a.ev, a.ev.view
	if len(best) == 0 || len(ev.scorers) == 0 {
		return
	}
	s := &result.scratch
	result.Record.Top = make([]decision.ScoredNode, 0, len(best))
	scores := make([]decision.Score, len(best)*len(ev.scorers))
	for _, j := range best {
		row := int(c.Rows[c.index(result.Kept[j])])
		n := view.At(row)
		scored := decision.ScoredNode{Node: n.Name, Total: s.totals[j]}
		scored.Scores, scores = scores[:0:len(ev.scorers)], scores[len(ev.scorers):]
		with := ns.counting(n, ev.pod, false)
		for at := range ev.scorers {
			scorer := &ev.scorers[at]
			score := int64(0)
			if x.columns[at].relative {
				score = s.scores[at][j]
			} else {
				score = ev.scoreAt(scorer, with, ev.cachedAt(with, row))
			}
			scored.Scores = append(scored.Scores, decision.Score{Policy: ev.members[scorer.member].Name, Score: score, Weight: scorer.weight})
		}
		result.Record.Top = append(result.Record.Top, scored)
	}
	for _, total := range s.totals {
		if total == s.totals[best[0]] {
			result.Record.Ties++
		}
	}
}
