package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// scratch is memory of one request whose size depends on the number of nodes. It belongs to a
// Result and is reused.
type scratch struct {
	all      []*snapshot.Node // of a Choice
	nodes    []*snapshot.Node // the requested nodes with the pods nominated to them
	rows     []int32          // of the requested nodes
	known    []int32          // indices of the requested nodes that are known
	best     []int32          // positions of the shortlist, or of nodes that Best may choose
	together []int32          // the rows that a policy scores together
	totals   []int64          // in the order of the scored indices, as are the scores
	scores   [][]int64        // by scorer
	raw      []int64          // of one scorer, as Score returned them
}

// shortlist reduces result.Kept to the k best nodes.
func (ev *evaluation) shortlist(ctx context.Context, nodes []*snapshot.Node, result *Result, k int) error {
	totals, err := ev.totals(ctx, nodes, result.Kept, result)
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

// score sets result.Totals for all requested nodes.
func (ev *evaluation) score(ctx context.Context, nodes []*snapshot.Node, result *Result) error {
	known := slices.Grow(result.scratch.known[:0], len(nodes))
	for i, n := range nodes {
		if n != nil {
			known = append(known, int32(i))
		}
	}
	result.scratch.known = known
	totals, err := ev.totals(ctx, nodes, known, result)
	if err != nil {
		return err
	}
	result.Totals = slices.Grow(result.Totals, len(nodes))[:len(nodes)]
	clear(result.Totals)
	for j, i := range known {
		result.Totals[i] = totals[j]
	}
	return nil
}

// totals returns the totals as sum does, and records the best nodes and all scores.
func (ev *evaluation) totals(ctx context.Context, nodes []*snapshot.Node, indices []int32, result *Result) ([]int64, error) {
	totals, err := ev.sum(ctx, nodes, indices, result)
	if err != nil || len(indices) == 0 || len(ev.scorers) == 0 {
		return totals, err
	}
	ev.noteTop(nodes, indices, top(totals, decision.TopNodes, make([]int32, 0, decision.TopNodes)), result)
	if result.Scores == nil {
		result.Scores = &decision.Scores{}
	}
	ev.copyScores(nodes, indices, &result.scratch, result.Scores)
	result.Scores.Claimed = result.Record.Top[0].HoldsClaim
	return totals, nil
}

// sum returns Σ weight × score for the nodes with the given indices, in their order. It puts nodes on
// which the pod holds a claim first. The nodes are known. The slice is scratch memory.
func (ev *evaluation) sum(ctx context.Context, nodes []*snapshot.Node, indices []int32, result *Result) ([]int64, error) {
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
		started := ev.now()
		err := guard(ev.members[scorer.member].Name, func() error { return ev.scoreBy(ctx, scorer, nodes, indices, scores, s) })
		ev.took(scorer.member, started)
		if err = cmp.Or(err, context.Cause(ctx)); err != nil {
			return nil, err
		}
		scorer.addTo(s.totals, scores)
	}
	ev.preferClaimed(nodes, indices, s.totals)
	return s.totals, nil
}

// scoreBy sets the scores of one policy. It stops when ctx ends.
func (ev *evaluation) scoreBy(ctx context.Context, scorer *scorerRef, nodes []*snapshot.Node, indices []int32, scores []int64, s *scratch) error {
	if scorer.rows != nil && ev.cache != nil {
		ev.scoreTogether(scorer, nodes, indices, scores, s)
		return scorer.finish(scores, s, func(j int) string { return nodes[indices[j]].Name })
	}
	final := scorer.normalize == nil // so far: without NormalizeScore the scores are final
	for j, i := range indices {
		if j%checkInterval == 0 && ctx.Err() != nil {
			return nil
		}
		score := ev.scoreOf(scorer, nodes[i], int(i))
		scores[j], final = score, final && inRange(score)
	}
	if final {
		return nil
	}
	return scorer.finish(scores, s, func(j int) string { return nodes[indices[j]].Name })
}

// scoreTogether sets the scores of a policy that scores the rows of a View together. It needs the cache, which only a pod has that
// ScoreRows may be called for.
func (ev *evaluation) scoreTogether(scorer *scorerRef, nodes []*snapshot.Node, indices []int32, scores []int64, s *scratch) {
	inView := func(i int32) bool { return ev.view.At(int(ev.rows[i])) == nodes[i] } // not with nominated pods
	s.together = s.together[:0]
	for _, i := range indices {
		if inView(i) {
			s.together = append(s.together, ev.rows[i])
		}
	}
	left := len(s.together)
	scorer.rows.ScoreRows(s.together, scores[:left])
	for j := len(indices) - 1; j >= 0 && left <= j; j-- { // makes room for the other nodes
		if i := indices[j]; inView(i) {
			left--
			scores[j] = scores[left]
		} else {
			scores[j] = scorer.score.Score(nodes[i])
		}
	}
}

// finish turns the scores of all nodes of a request, as Score returned them, into final ones. name returns the name of the node with the
// index in scores.
func (scorer *scorerRef) finish(scores []int64, s *scratch, name func(j int) string) error {
	s.raw = append(s.raw[:0], scores...)
	if scorer.normalize != nil {
		scorer.normalize.NormalizeScore(scores)
	}
	if allInRange(scores) { // as usual
		return nil
	}
	if j := invalid(scores, s.raw); j >= 0 {
		return fmt.Errorf("score %d for node %q: must be between 0 and %d", scores[j], name(j), policy.MaxScore)
	}
	replaceNoOpinion(scores)
	return nil
}

// addTo adds the weighted scores to the totals of the same nodes.
func (scorer *scorerRef) addTo(totals, scores []int64) {
	weight, totals := scorer.weight, totals[:len(scores)]
	for j, score := range scores {
		totals[j] += weight * score
	}
}

func allInRange(scores []int64) bool {
	for _, score := range scores {
		if !inRange(score) {
			return false
		}
	}
	return true
}

func inRange(score int64) bool { return score >= 0 && score <= policy.MaxScore }

// invalid returns the index of the first score that is out of range and is not a NoOpinion that
// Score returned, or -1.
func invalid(scores, raw []int64) int {
	for j, score := range scores {
		if !inRange(score) && (score != policy.NoOpinion || raw[j] != policy.NoOpinion) {
			return j
		}
	}
	return -1
}

// replaceNoOpinion replaces each NoOpinion with the mean of the other scores, rounded down,
// or with MaxScore/2 if there are no others.
func replaceNoOpinion(scores []int64) {
	var sum, known int64
	for _, score := range scores {
		if score != policy.NoOpinion {
			sum, known = sum+score, known+1
		}
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
}

// claimants returns the pods that hold claims on the node's units and are not bound to it.
func claimants(n *snapshot.Node) []types.UID {
	if len(n.Ledgers) == 0 {
		return nil
	}
	bound := make(map[types.UID]struct{}, len(n.Pods))
	for _, pod := range n.Pods {
		bound[pod.UID] = struct{}{}
	}
	var waiting []types.UID
	for _, l := range n.Ledgers {
		for i := range l.Pods {
			if _, ok := bound[l.Pods[i].UID]; !ok {
				waiting = append(waiting, l.Pods[i].UID)
			}
		}
	}
	return waiting
}

// holdsClaim reports whether the pod holds a claim on the node from an earlier attempt to bind it.
func (ev *evaluation) holdsClaim(n *snapshot.Node) bool {
	return ev.claimants != nil && ev.pod.UID != "" && slices.Contains(*ev.claimants.Of(n), ev.pod.UID)
}

// preferClaimed gives a node on which the pod already holds a claim the largest total, and every
// other node less, because the pod would hold a second claim there.
func (ev *evaluation) preferClaimed(nodes []*snapshot.Node, indices []int32, totals []int64) {
	if ev.claimants == nil || ev.maxTotal == 0 {
		return
	}
	found := false
	for j, i := range indices {
		if ev.holdsClaim(nodes[i]) {
			totals[j], found = ev.maxTotal, true
		}
	}
	if !found {
		return
	}
	for j, i := range indices {
		if totals[j] == ev.maxTotal && !ev.holdsClaim(nodes[i]) {
			totals[j]--
		}
	}
}

// noteTop records the best nodes, at the given positions in indices, with each policy's part in their totals. There is at least one, and
// a policy that scores.
func (ev *evaluation) noteTop(nodes []*snapshot.Node, indices, best []int32, result *Result) {
	s := &result.scratch
	result.Record.Top = make([]decision.ScoredNode, 0, len(best))
	scores := make([]decision.Score, len(best)*len(ev.scorers))
	for _, j := range best {
		i := indices[j]
		n := nodes[i]
		scored := decision.ScoredNode{Node: ev.nameOf(n, int(i)), Total: s.totals[j], HoldsClaim: ev.holdsClaim(n)}
		scored.Scores, scores = scores[:0:len(ev.scorers)], scores[len(ev.scorers):]
		for at := range ev.scorers {
			scorer := &ev.scorers[at]
			scored.Scores = append(scored.Scores, decision.Score{Policy: ev.members[scorer.member].Name, Score: s.scores[at][j], Weight: scorer.weight})
		}
		result.Record.Top = append(result.Record.Top, scored)
	}
	for _, total := range s.totals {
		if total == s.totals[best[0]] {
			result.Record.Ties++
		}
	}
}

// copyScores copies the scores of all nodes.
func (ev *evaluation) copyScores(nodes []*snapshot.Node, indices []int32, s *scratch, all *decision.Scores) {
	all.Nodes = slices.Grow(all.Nodes[:0], len(indices))[:len(indices)]
	for j, i := range indices {
		all.Nodes[j] = ev.nameOf(nodes[i], int(i))
	}
	all.Totals = slices.Grow(all.Totals[:0], len(indices))[:len(indices)]
	for j, total := range s.totals {
		all.Totals[j] = int32(total)
	}
	all.Policies, all.Parts = all.Policies[:0], slices.Grow(all.Parts[:0], len(indices)*len(ev.scorers))
	for at, scorer := range ev.scorers {
		all.Policies = append(all.Policies, decision.ScoringPolicy{Name: ev.members[scorer.member].Name, Weight: scorer.weight})
		for _, score := range s.scores[at] {
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
