package engine

import (
	"context"
	"fmt"
	"slices"

	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// scratch is the memory of one request that grows with the number of nodes. It
// belongs to a Result and is used again.
type scratch struct {
	outcomes []int32
	totals   []int64
	scores   [][]int64 // by scorer, aligned with the indices scored
	all      []int32   // 0, 1, 2, …
	best     []int32
}

func (s *scratch) reset(nodes int) {
	s.outcomes = slices.Grow(s.outcomes[:0], nodes)
	s.best = s.best[:0]
}

// every returns the indices 0..n-1.
func (s *scratch) every(n int) []int32 {
	for i := len(s.all); i < n; i++ {
		s.all = append(s.all, int32(i))
	}
	return s.all[:n]
}

// shortlist reduces result.Kept to the k best nodes, and remembers all totals
// for the prioritize call that may follow.
func (ev *evaluation) shortlist(ctx context.Context, nodes []*snapshot.Node, result *Result, k int) error {
	totals, err := ev.totals(ctx, nodes, result.Kept, result)
	if err != nil {
		return err
	}
	ev.complete = true
	for at, i := range result.Kept {
		if n := nodes[i]; ev.key.view.At(n.Row()) == n {
			ev.cells[n.Row()].total = int32(totals[at])
		}
	}
	ev.recordTop(nodes, result.Kept, totals, result)
	best := top(totals, k, result.scratch.best)
	result.scratch.best = best
	for at, b := range best {
		best[at] = result.Kept[b]
	}
	slices.Sort(best)
	result.Kept = append(result.Kept[:0], best...)
	return nil
}

// scoreAsked sets result.Totals for all nodes asked.
func (ev *evaluation) scoreAsked(ctx context.Context, nodes []*snapshot.Node, result *Result, shortlisted bool) error {
	if shortlisted && ev.fromShortlist(nodes, result) {
		return nil
	}
	asked := result.scratch.every(len(nodes))
	totals, err := ev.totals(ctx, nodes, asked, result)
	if err != nil {
		return err
	}
	result.Totals = append(result.Totals[:0], totals...)
	ev.recordTop(nodes, asked, totals, result)
	return nil
}

// fromShortlist sets result.Totals to the totals by which the nodes came onto
// the shortlist, if all of them did.
func (ev *evaluation) fromShortlist(nodes []*snapshot.Node, result *Result) bool {
	if !ev.complete {
		return false
	}
	for _, n := range nodes {
		if n == nil || ev.key.view.At(n.Row()) != n || ev.cells[n.Row()].total < 0 {
			result.Totals = result.Totals[:0]
			return false
		}
		result.Totals = append(result.Totals, int64(ev.cells[n.Row()].total))
	}
	return true
}

// totals returns Σ weight × score for the nodes with the given indices, aligned
// with them. The slice is scratch memory.
func (ev *evaluation) totals(ctx context.Context, nodes []*snapshot.Node, indices []int32, result *Result) ([]int64, error) {
	s := &result.scratch
	s.totals = slices.Grow(s.totals[:0], len(indices))[:len(indices)]
	clear(s.totals)
	for len(s.scores) < len(ev.scorers) {
		s.scores = append(s.scores, nil)
	}
	if len(indices) == 0 {
		return s.totals, nil
	}
	for at := range ev.scorers {
		scorer := &ev.scorers[at]
		scores := slices.Grow(s.scores[at][:0], len(indices))[:len(indices)]
		s.scores[at] = scores
		ev.running = scorer.member
		for j, i := range indices {
			if j%checkEvery == 0 && ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			scores[j] = 0
			if n := nodes[i]; n != nil {
				scores[j] = scorer.score.Score(n)
			}
		}
		if scorer.normalize != nil {
			scorer.normalize.NormalizeScore(scores)
		}
		for j, score := range scores {
			if score < 0 || score > policy.MaxScore {
				return nil, ev.failed(scorer.member, fmt.Errorf("score %d for node %q: must be between 0 and %d", score, nameOf(nodes[indices[j]]), policy.MaxScore))
			}
			s.totals[j] += scorer.weight * score
		}
	}
	ev.running = -1
	return s.totals, nil
}

// recordTop notes the best nodes with each policy's part in their totals.
func (ev *evaluation) recordTop(nodes []*snapshot.Node, indices []int32, totals []int64, result *Result) {
	best := top(totals, decision.TopNodes, make([]int32, 0, decision.TopNodes))
	result.Record.Top = make([]decision.ScoredNode, 0, len(best))
	for _, j := range best {
		n := nodes[indices[j]]
		scored := decision.ScoredNode{Node: nameOf(n), Total: totals[j], Scores: make([]decision.Score, 0, len(ev.scorers))}
		for at := range ev.scorers {
			scorer := &ev.scorers[at]
			score := decision.Score{Policy: ev.members[scorer.member].Name, Score: result.scratch.scores[at][j], Weight: scorer.weight}
			score.Raw = score.Score
			if scorer.normalize != nil && n != nil {
				ev.running = scorer.member
				score.Raw = scorer.score.Score(n)
				ev.running = -1
			}
			scored.Scores = append(scored.Scores, score)
		}
		result.Record.Top = append(result.Record.Top, scored)
	}
}

// top returns the positions of the k largest totals, best first; of equal ones
// the earlier is the better. It appends to best[:0].
func top(totals []int64, k int, best []int32) []int32 {
	best = best[:0]
	for j := range totals {
		if len(best) == k {
			if totals[j] <= totals[best[k-1]] {
				continue
			}
			best = best[:k-1]
		}
		// Behind all that are at least as good: a binary search for the first worse one.
		at, _ := slices.BinarySearchFunc(best, totals[j], func(b int32, total int64) int {
			if totals[b] >= total {
				return -1
			}
			return 1
		})
		best = slices.Insert(best, at, int32(j))
	}
	return best
}

func nameOf(n *snapshot.Node) string {
	if n == nil {
		return ""
	}
	return n.Name
}

// MaxLevel is the best score kube-scheduler expects of an extender.
const MaxLevel int64 = 10

// Levels replaces, in place, totals in 0..maxTotal with levels in 0..MaxLevel,
// as the package documentation tells: a better node never gets a lower level,
// and the best never shares its level with a worse one. With maxTotal 0 all
// levels are 0.
func Levels(totals []int64, maxTotal int64) {
	if len(totals) == 0 {
		return
	}
	best := slices.Max(totals)
	if maxTotal <= 0 || best <= 0 {
		clear(totals)
		return
	}
	level := func(total int64) int64 { return min(max(total, 0), maxTotal) * MaxLevel / maxTotal }
	second := int64(-1) // the best total below best
	for _, total := range totals {
		if total < best {
			second = max(second, total)
		}
	}
	bestLevel := level(best)
	if second >= 0 && level(second) == bestLevel {
		bestLevel = min(bestLevel+1, MaxLevel)
	}
	for i, total := range totals {
		if total == best {
			totals[i] = bestLevel
		} else {
			totals[i] = min(level(total), bestLevel-1)
		}
	}
}
