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
	rejections tally    // without nodes
	columns    []column // by member
	position   uint64   // in the trail; 0: totals are not valid
	changed    []int32
	some       []int64 // the scores of one node, by member
}

// column says where the scores of a policy are.
type column struct {
	// relative is true if they depend on the scores of other nodes, because the policy normalizes or has no opinion about some: then they
	// are not in the totals.
	relative bool
	scores   []int64 // if relative: by row, as Score returned them. Nil if the policy scores all rows together.
}

const noNode = math.MinInt32

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

// errFailed means that a policy has failed and is ignored, so that the index must not be used.
var errFailed = errors.New("a policy has failed")

// bestIndexed is Best with the index of the pod's signature. It returns false, and has decided nothing, if the pod cannot have one, because
// not all that the policies say about a node depends on the node and the signature alone, or if a policy fails.
func (c *Cycle) bestIndexed(choice *Choice, result *Result) bool {
	if c.cache == nil || c.unsigned || c.failures.Load() > 0 {
		return false
	}
	x := &c.cache.index
	result.reset(c.newRecord(len(choice.Rows)))
	var counted tally
	err := guard(c.engine.members[itself].Name, func() error {
		err := c.update(x)
		for errors.Is(err, errOpinion) { // at most once for each policy
			err = c.update(x)
		}
		if err == nil {
			counted, err = c.rank(choice, x, result)
		}
		return err
	})
	if err != nil {
		x.position = 0
		return false
	}
	result.Record.Fit = len(result.Kept)
	result.Record.Policies, result.Record.MaxTotal = c.recordPolicies(), c.maxTotal()
	result.Record.Rejections = counted.rejections(c.engine.members, nil)
	chosen := choice.choose(result, c.engine.zones.of(c.view))
	if best := chosen[:min(len(chosen), decision.TopNodes)]; len(best) > 0 && len(c.scoring) > 0 {
		c.noteIndexed(choice, x, best, result)
	}
	result.keep(choice, chosen)
	return true
}

// update brings the index up to date. After errOpinion, call it again.
func (c *Cycle) update(x *index) error {
	changed, now, ok := c.engine.trail.since(x.position, c.view, x.changed[:0])
	x.changed = changed
	if !ok {
		c.beginIndex(x)
	}
	for _, row := range x.changed {
		n := c.view.At(int(row))
		if n == nil {
			x.totals[row] = noNode
			continue
		}
		total, err := c.totalOf(x, n, c.cachedAt(n, int(row)), x.some)
		if err != nil {
			x.position = 0
			return err
		}
		x.totals[row] = total
		for m := range x.columns {
			if scores := x.columns[m].scores; scores != nil {
				scores[row] = x.some[m]
			}
		}
	}
	if cap(x.changed) > trailLength/8 { // after all rows: another time there are few
		x.changed = nil
	}
	x.position = now
	return nil
}

// beginIndex makes the index forget all nodes, and regards all rows as changed.
func (c *Cycle) beginIndex(x *index) {
	rows, members := c.view.Rows(), len(c.policies)
	x.totals = slices.Grow(x.totals[:0], rows)[:rows]
	x.rejections = x.rejections[:0]
	x.changed = x.changed[:0]
	for row := range x.totals {
		x.changed = append(x.changed, int32(row))
	}
	if len(x.columns) != members {
		x.columns, x.some = make([]column, members), make([]int64, members)
	}
	for _, m := range c.scoring {
		p, col := &c.policies[m], &x.columns[m]
		col.relative = col.relative || p.normalize != nil || p.rows != nil
		if col.relative && p.rows == nil {
			col.scores = slices.Grow(col.scores[:0], rows)[:rows]
		}
	}
}

// totalOf returns what index.totals has for the node. cached is its entry in the cache, or nil. It sets those of scores that are relative,
// except those of policies that score the rows of a View together, unless the node is another one than in the View.
func (c *Cycle) totalOf(x *index, n *snapshot.Node, cached *cachedNode, scores []int64) (int32, error) {
	verdict, member, err := c.verdict(n, cached != nil && cached.fits)
	switch {
	case err != nil:
		return 0, err
	case c.failures.Load() > 0:
		return 0, errFailed
	case !verdict.Fits():
		return -1 - x.rejections.find(member, verdict.Reason, verdict.Unresolvable), nil
	}
	if cached != nil {
		cached.fits = true
	}
	var total int64
	for _, m := range c.scoring {
		p, col := &c.policies[m], &x.columns[m]
		if col.relative && p.rows != nil && cached != nil {
			continue
		}
		score := p.scoreOf(n, cached)
		switch {
		case col.relative:
			scores[m] = score
		case score == policy.NoOpinion:
			col.relative = true
			return 0, errOpinion
		case !inRange(score):
			return 0, errScore
		default:
			total += c.engine.members[m].Weight * score
		}
	}
	return int32(total), nil
}

// apart holds the scores of a node to which pods are nominated, which are not in the index.
type apart struct {
	kept   int // its index in result.Kept
	scores []int64
}

// rank sets result.Kept to the positions of the nodes that fit, and the totals to theirs. It counts the others.
func (c *Cycle) rank(choice *Choice, x *index, result *Result) (counted tally, err error) {
	s, n, fit := &result.scratch, len(choice.Rows), 0
	s.begin(n, len(c.policies))
	totals, kept := s.totals, slices.Grow(result.Kept[:0], n)[:n]
	counted = slices.Clone(x.rejections)
	var others []apart
	for position := range choice.Rows {
		row := choice.Rows[choice.index(int32(position))]
		total := x.totals[row]
		if c.nominations != nil && c.nominations.byRow[row] != nil {
			other := apart{fit, make([]int64, len(c.policies))}
			if total, err = c.totalBeside(x, c.view.At(int(row)), other.scores); err != nil {
				return nil, err
			}
			if total >= 0 {
				others = append(others, other)
			}
			counted = append(counted, x.rejections[len(counted):]...)
		}
		if total >= 0 {
			kept[fit], totals[fit] = int32(position), int64(total)
			fit++
		} else if total != noNode {
			counted[-1-total].nodes++
		}
	}
	result.Kept, s.totals = kept[:fit], totals[:fit]
	return counted, c.addRelative(choice, x, others, result)
}

// totalBeside is totalOf for a node to which pods are nominated.
func (c *Cycle) totalBeside(x *index, n *snapshot.Node, scores []int64) (total int32, err error) {
	with := c.CountNominated(n)
	if total, err = c.totalOf(x, with, nil, scores); err != nil || total < 0 || with == n {
		return total, err
	}
	alone, err := c.totalOf(x, n, nil, slices.Clone(scores))
	if alone < 0 {
		total = alone
	}
	return total, err
}

// addRelative adds to the totals of the nodes that fit the scores that depend on each other.
func (c *Cycle) addRelative(choice *Choice, x *index, others []apart, result *Result) error {
	s := &result.scratch
	if len(result.Kept) == 0 || !slices.ContainsFunc(x.columns, func(col column) bool { return col.relative }) {
		return nil
	}
	s.rows = slices.Grow(s.rows[:0], len(result.Kept))
	for _, position := range result.Kept {
		s.rows = append(s.rows, choice.Rows[choice.index(position)])
	}
	for _, m := range c.scoring {
		p, col := &c.policies[m], &x.columns[m]
		if !col.relative {
			continue
		}
		scores := slices.Grow(s.scores[m][:0], len(s.rows))[:len(s.rows)]
		s.scores[m] = scores
		if p.rows != nil {
			p.rows.ScoreRows(s.rows, scores)
		} else {
			for j, row := range s.rows {
				scores[j] = col.scores[row]
			}
		}
		for _, other := range others {
			scores[other.kept] = other.scores[m]
		}
		if err := p.finish(scores, s, func(int) string { return "" }); err != nil {
			return err
		}
		c.addTo(s.totals, m, scores)
	}
	return nil
}

// noteIndexed records the best nodes, as noteTop does.
func (c *Cycle) noteIndexed(choice *Choice, x *index, best []int32, result *Result) {
	row := func(j int32) int { return int(choice.Rows[choice.index(result.Kept[j])]) }
	c.noteScores(best, result, func(j int32) decision.ScoredNode {
		return decision.ScoredNode{Node: c.view.At(row(j)).Name}
	}, func(j int32, m int) int64 {
		if x.columns[m].relative {
			return result.scratch.scores[m][j]
		}
		with := c.CountNominated(c.view.At(row(j)))
		return c.policies[m].scoreOf(with, c.cachedAt(with, row(j)))
	})
}
