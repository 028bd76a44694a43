package engine

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Score begins a Cycle, and calls its Score.
func (e *Engine) Score(ctx context.Context, req Request, result *Result) error {
	c, _ := e.Begin(ctx, req.Pod, req.View) // Score returns the error
	return c.Score(ctx, req.Nodes, req.Rows, result)
}

// Score computes the totals of the nodes. It does not filter: as in kube-scheduler, the nodes of
// the request have passed the filters. An unknown node has total 0, and does not take part in
// NormalizeScore. nodes and rows are as in [Request]. The error is as for [Cycle.Filter].
func (c *Cycle) Score(ctx context.Context, nodes []*snapshot.Node, rows []int32, result *Result) error {
	return c.decide(ctx, nodes, rows, result, func() error {
		result.Record.Fit, result.Record.Returned = len(nodes), len(nodes)
		known := slices.Grow(result.scratch.left[0][:0], len(nodes))
		for i, n := range nodes {
			if n != nil {
				known = append(known, int32(i))
			}
		}
		result.scratch.left[0] = known
		totals, err := c.totals(ctx, known, result)
		if err != nil {
			return err
		}
		result.Totals = slices.Grow(result.Totals, len(nodes))[:len(nodes)]
		clear(result.Totals)
		for j, i := range known {
			result.Totals[i] = totals[j]
		}
		return nil
	})
}

// shortlist reduces result.Kept to the k best nodes.
func (c *Cycle) shortlist(ctx context.Context, result *Result, k int) error {
	totals, err := c.totals(ctx, result.Kept, result)
	if err != nil {
		return err
	}
	best := top(totals, k, result.scratch.best)
	result.scratch.best = best
	slices.Sort(best)
	for at, j := range best { // j ≥ at: overwrites only entries that were read before
		result.Kept[at] = result.Kept[j]
	}
	result.Kept = result.Kept[:len(best)]
	return nil
}

// totals returns the totals as sum does, and records the best nodes and all scores.
func (c *Cycle) totals(ctx context.Context, indices []int32, result *Result) ([]int64, error) {
	totals, err := c.sum(ctx, indices, result)
	if err != nil || len(indices) == 0 || len(c.scoring) == 0 {
		return totals, err
	}
	c.noteTop(indices, top(totals, decision.TopNodes, make([]int32, 0, decision.TopNodes)), result)
	if result.Scores == nil {
		result.Scores = &decision.Scores{}
	}
	c.copyScores(indices, &result.scratch, result.Scores)
	result.Scores.Allocated = result.Record.Top[0].HoldsAllocation
	return totals, nil
}

// sum returns Σ weight × score for the nodes with the given indices, in their order: the sum of the
// complete columns. It puts nodes on which the pod holds an allocation first. The nodes are known.
// The slice is scratch memory.
func (c *Cycle) sum(ctx context.Context, indices []int32, result *Result) ([]int64, error) {
	s := &result.scratch
	s.totals = slices.Grow(s.totals[:0], len(indices))[:len(indices)]
	clear(s.totals)
	for len(s.scores) < len(c.policies) {
		s.scores = append(s.scores, nil)
	}
	if len(indices) == 0 {
		return s.totals, nil
	}
	for _, m := range c.scoring {
		if c.policies[m].ignored.Load() != nil {
			continue
		}
		scores := slices.Grow(s.scores[m][:0], len(indices))[:len(indices)]
		s.scores[m] = scores
		complete, err := c.column(ctx, m, func() error { return c.scoreColumn(ctx, m, indices, scores, s) })
		if err != nil {
			return nil, err
		}
		if complete {
			weight, totals := c.engine.members[m].Weight, s.totals[:len(scores)]
			for j, score := range scores {
				totals[j] += weight * score
			}
		}
	}
	c.scoring = slices.DeleteFunc(c.scoring, func(m int) bool { return c.policies[m].ignored.Load() != nil })
	c.preferAllocated(indices, s.totals)
	return s.totals, nil
}

// scoreColumn sets the scores of one policy. It stops when ctx ends.
func (c *Cycle) scoreColumn(ctx context.Context, member int, indices []int32, scores []int64, s *scratch) error {
	p := &c.policies[member]
	if p.rows != nil && c.cache != nil {
		c.scoreTogether(p, indices, scores, s)
		return c.finish(p, indices, scores, s)
	}
	final := p.normalize == nil // so far: without NormalizeScore the scores are final
	for j, i := range indices {
		if j%checkInterval == 0 && ctx.Err() != nil {
			return nil
		}
		score := c.scoreOf(p, i)
		scores[j], final = score, final && inRange(score)
	}
	if final {
		return nil
	}
	return c.finish(p, indices, scores, s)
}

// scoreOf returns the score of the node with the index, as Score returns it, from the cache if it
// is there.
func (c *Cycle) scoreOf(p *prepared, i int32) int64 {
	if c.cache == nil || p.slot < 0 || c.rows[i] < 0 {
		return p.score.Score(c.nodes[i])
	}
	cached := &c.cache.scores[p.slot][c.rows[i]]
	if *cached == unknownScore {
		score := p.score.Score(c.nodes[i])
		if score <= unknownScore || score > math.MaxInt32 {
			return score
		}
		*cached = int32(score)
	}
	return int64(*cached)
}

// scoreTogether sets the scores of a policy that scores the rows of a View together. It needs the
// cache, which only a pod has that ScoreRows may be called for.
func (c *Cycle) scoreTogether(p *prepared, indices []int32, scores []int64, s *scratch) {
	inView := func(i int32) bool { return c.rows[i] >= 0 } // not with nominated pods
	s.together = s.together[:0]
	for _, i := range indices {
		if inView(i) {
			s.together = append(s.together, c.rows[i])
		}
	}
	s.raw = slices.Grow(s.raw[:0], len(indices))[:len(s.together)]
	p.rows.ScoreRows(s.together, s.raw)
	next := 0
	for j, i := range indices {
		if inView(i) {
			scores[j] = s.raw[next]
			next++
		} else {
			scores[j] = p.score.Score(c.nodes[i])
		}
	}
}

// finish turns the scores of all nodes of a request, as Score returned them, into final ones: it
// normalizes them, and replaces each NoOpinion that Score returned with the mean of the other
// scores, rounded down, or with MaxScore/2 if there are no others.
func (c *Cycle) finish(p *prepared, indices []int32, scores []int64, s *scratch) error {
	s.raw = append(s.raw[:0], scores...)
	if p.normalize != nil {
		p.normalize.NormalizeScore(scores)
	}
	var sum, known int64
	for j, score := range scores {
		switch {
		case inRange(score):
			sum, known = sum+score, known+1
		case score != policy.NoOpinion || s.raw[j] != policy.NoOpinion:
			return fmt.Errorf("score %d for node %q: must be between 0 and %d", score, c.nodes[indices[j]].Name, policy.MaxScore)
		}
	}
	if known == int64(len(scores)) { // as usual
		return nil
	}
	mean := policy.MaxScore / 2
	if known > 0 {
		mean = sum / known
	}
	for j, score := range scores {
		if score == policy.NoOpinion {
			scores[j] = mean
		}
	}
	return nil
}

func inRange(score int64) bool { return score >= 0 && score <= policy.MaxScore }

// noteTop records the best nodes, at the given positions in indices, with each policy's part in
// their totals. There is at least one, and a policy that scores.
func (c *Cycle) noteTop(indices, best []int32, result *Result) {
	s := &result.scratch
	result.Record.Top = make([]decision.ScoredNode, 0, len(best))
	scores := make([]decision.Score, 0, len(best)*len(c.scoring))
	for _, j := range best {
		i, first := indices[j], len(scores)
		for _, m := range c.scoring {
			member := &c.engine.members[m]
			scores = append(scores, decision.Score{Policy: member.Name, Score: s.scores[m][j], Weight: member.Weight})
		}
		result.Record.Top = append(result.Record.Top, decision.ScoredNode{
			Node: c.nameOf(i), Total: s.totals[j], HoldsAllocation: c.holdsAllocation(c.nodes[i]), Scores: slices.Clip(scores[first:]),
		})
	}
	for _, total := range s.totals {
		if total == s.totals[best[0]] {
			result.Record.Ties++
		}
	}
}

// copyScores copies the scores of all nodes.
func (c *Cycle) copyScores(indices []int32, s *scratch, all *decision.Scores) {
	all.Nodes = slices.Grow(all.Nodes[:0], len(indices))[:len(indices)]
	for j, i := range indices {
		all.Nodes[j] = c.nameOf(i)
	}
	all.Totals = slices.Grow(all.Totals[:0], len(indices))[:len(indices)]
	for j, total := range s.totals {
		all.Totals[j] = int32(total)
	}
	all.Policies, all.Parts = all.Policies[:0], slices.Grow(all.Parts[:0], len(indices)*len(c.scoring))
	for _, m := range c.scoring {
		member := &c.engine.members[m]
		all.Policies = append(all.Policies, decision.Policy{Name: member.Name, Weight: member.Weight})
		for _, score := range s.scores[m] {
			all.Parts = append(all.Parts, uint8(score))
		}
	}
}

// top returns the positions of the k largest totals, best first; of equal totals the earlier
// position is better. It appends to best[:0].
func top(totals []int64, k int, best []int32) []int32 {
	best = best[:0]
	for j := range totals {
		if len(best) == k {
			if totals[j] <= totals[best[k-1]] {
				continue
			}
			best = best[:k-1]
		}
		// Insert after all that are at least as good: a binary search for the first worse one.
		at := sort.Search(len(best), func(at int) bool { return totals[best[at]] < totals[j] })
		best = slices.Insert(best, at, int32(j))
	}
	return best
}
