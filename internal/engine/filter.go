package engine

import (
	"context"
	"math"
	"slices"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Filter begins a Cycle, and calls its Filter.
func (e *Engine) Filter(ctx context.Context, req Request, result *Result) error {
	c, _ := e.Begin(ctx, req.Pod, req.View) // Filter returns the error
	return c.Filter(ctx, req.Nodes, req.Rows, result)
}

// Filter finds the nodes on which the pod fits and, with a shortlist, the best of them. nodes and
// rows are as in [Request]. The error is a *PolicyError, or the cause of the context's end.
// result.Record is always set.
func (c *Cycle) Filter(ctx context.Context, nodes []*snapshot.Node, rows []int32, result *Result) error {
	return c.decide(ctx, nodes, rows, result, func() error {
		if err := c.filter(ctx, result, false); err != nil {
			return err
		}
		if k := c.engine.shortlist; k > 0 && len(result.Kept) > k {
			if err := c.shortlist(ctx, result, k); err != nil {
				return err
			}
		}
		result.Record.Returned = len(result.Kept)
		return nil
	})
}

// FitsAny reports whether the pod fits on at least one of the nodes. It evaluates them in order
// until one fits. It writes no record, and neither reads nor changes the caches, so that checking
// many pending pods does not slow down the pods that are being placed. The error is as for Filter.
func (e *Engine) FitsAny(ctx context.Context, req Request) (fits bool, err error) {
	c, err := e.Begin(ctx, req.Pod, req.View)
	if err != nil {
		return false, err
	}
	err = c.whole(func() error {
		for i, n := range req.Nodes {
			if i%checkInterval == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if n == nil {
				continue
			}
			if fits, err = c.passesBeside(n); fits || err != nil {
				return err
			}
		}
		return nil
	})
	return fits && err == nil, err
}

// FilterNode evaluates a node on which the pod may be placed, as kube-scheduler's framework calls
// its plugins, and records the verdict. After a policy with failurePolicy: Ignore has panicked, it
// ignores the policy. Nodes that it rejected before stay rejected.
func (c *Cycle) FilterNode(n *snapshot.Node) (policy.Verdict, error) {
	row := c.cacheRow(n)
	verdict, member, err := c.verdict(n, row >= 0 && c.cache.outcomes[row] == passes)
	if err == nil && verdict.Fits() {
		if row >= 0 && c.failures.Load() == 0 {
			c.cache.outcomes[row] = passes
		}
		c.passed.Add(1)
		return verdict, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failure = err
	} else {
		why := &c.tally[c.tally.find(member, verdict.Reason, verdict.Unresolvable)]
		why.count(int32(len(c.rejected)), numbers{verdict.Have, verdict.Want})
		c.rejected = append(c.rejected, n)
	}
	return verdict, err
}

// Fits reports whether the cache shows that the node of the View with this row and version fits,
// and records that: FilterNode returns the same for it. It does not load the node.
func (c *Cycle) Fits(row int, version uint64) bool {
	if c.cache == nil || !c.signedFilters {
		return false
	}
	if c.cache.versions[row] != version || c.cache.outcomes[row] != passes {
		return false
	}
	c.passed.Add(1)
	return true
}

// Rejected returns the nodes that FilterNode has rejected so far, in no particular order. The
// caller must not write to them.
func (c *Cycle) Rejected() []*snapshot.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clip(c.rejected)
}

// Record returns the record of the verdicts of FilterNode so far. fit is the number of nodes that
// fit. If FilterNode was called for fewer nodes, because no policy can reject any, these are all
// nodes of the record.
func (c *Cycle) Record(fit int) *decision.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	record := c.newRecord(max(fit, int(c.passed.Load())+len(c.rejected)))
	record.Fit, record.Returned = fit, fit
	record.Policies, record.MaxTotal = c.recordPolicies(), c.maxTotal()
	record.Rejections = slices.Clone(c.tally).rejections(c.engine.members, c.rejected)
	if c.failure != nil {
		record.Error = c.failure.Error()
	}
	return record
}

// Verdict returns the verdict on a node, which may be a changed copy, and records nothing. It
// counts no nominated pods.
func (c *Cycle) Verdict(n *snapshot.Node) (policy.Verdict, error) {
	v, _, err := c.verdict(n, false)
	return v, err
}

// CountNominated returns the node with the pods that are nominated to it and count for the pod. A
// pod fits on a node if it fits both with and without them. On a changed node, these pods may get
// something else than on the node of the View.
func (c *Cycle) CountNominated(n *snapshot.Node) *snapshot.Node {
	return c.nominations.counting(n, c.pod)
}

// passesBeside reports whether every policy lets the node pass both with the nominated pods that
// count for the pod and without them.
func (c *Cycle) passesBeside(n *snapshot.Node) (bool, error) {
	counting := c.nominations.counting(n, c.pod)
	v, err := c.Verdict(counting)
	if err == nil && v.Fits() && counting != n {
		v, err = c.Verdict(n)
	}
	return err == nil && v.Fits(), err
}

// verdict evaluates one node: a column of length one for each policy, until one rejects the node.
// cached says that the node passes the filters with a signature.
func (c *Cycle) verdict(n *snapshot.Node, cached bool) (v policy.Verdict, member int, err error) {
	for m := range c.policies {
		if cached && c.policies[m].signed {
			continue
		}
		if v, err = c.columnOfOne(m, n); err != nil || !v.Fits() {
			return v, m, err
		}
	}
	return policy.Verdict{}, outboard, nil
}

// columnOfOne returns the verdict of a member on one node. It is not measured.
func (c *Cycle) columnOfOne(member int, n *snapshot.Node) (v policy.Verdict, err error) {
	p := &c.policies[member]
	if p.filter == nil || p.ignored.Load() != nil {
		return v, nil
	}
	if err = guard(c.engine.members[member].Name, func() error { v = p.filter.Filter(n); return nil }); err != nil {
		return policy.Verdict{}, c.unlessIgnored(member, err)
	}
	return v, nil
}

// filter sets result.Kept and result.Rejected: column by column, it reduces the nodes that are
// left. If only the number of rejections counts, these are cached as well: result.Rejected is
// empty, and the record has no nearest nodes.
func (c *Cycle) filter(ctx context.Context, result *Result, count bool) error {
	s := &result.scratch
	if count {
		s.tally = append(s.tally, c.cache.rejections...) // so that indices into one are those into the other
	}
	left := c.beginColumns(s, count)
	for m := range c.policies {
		p := &c.policies[m]
		if p.filter == nil || p.ignored.Load() != nil {
			continue
		}
		passed := slices.Grow(s.left[1][:0], len(left))
		complete, err := c.column(ctx, m, func() error {
			passed = c.filterColumn(ctx, m, left, passed, s)
			return nil
		})
		if err != nil {
			return err
		}
		if !complete {
			for _, i := range left {
				s.outcomes[i] = fits
			}
			continue
		}
		s.left[0], s.left[1] = passed, left
		left = passed
	}
	if c.cache != nil && c.failures.Load() == 0 {
		for _, i := range left {
			if row := c.rows[i]; row >= 0 {
				c.cache.outcomes[row] = passes
			}
		}
		if count {
			c.cache.rejections = append(c.cache.rejections, s.tally[len(c.cache.rejections):]...)
			for i, o := range s.outcomes {
				if row := c.rows[i]; o != fits && row >= 0 && o < math.MaxUint8-int32(firstRejection) {
					c.cache.outcomes[row] = firstRejection + uint8(o)
				}
			}
		}
	}
	c.endColumns(result, count)
	return nil
}

// beginColumns returns the indices of the known nodes that are left before the first column: those
// of which the cache does not have the outcome of all filters.
func (c *Cycle) beginColumns(s *scratch, count bool) (left []int32) {
	n := len(c.nodes)
	s.outcomes, s.numbers = slices.Grow(s.outcomes[:0], n)[:n], slices.Grow(s.numbers[:0], n)[:n]
	left = slices.Grow(s.left[0][:0], n)
	for i, node := range c.nodes {
		s.outcomes[i] = fits
		if node == nil {
			s.outcomes[i] = s.tally.find(outboard, NodeUnknown, false)
			continue
		}
		switch known := c.outcome(int32(i)); {
		case known == passes && c.signedFilters:
		case known >= firstRejection && count:
			s.outcomes[i] = int32(known - firstRejection)
		default:
			left = append(left, int32(i))
		}
	}
	s.left[0] = left
	return left
}

// outcome returns what the cache has about the node with the index.
func (c *Cycle) outcome(i int32) uint8 {
	if c.cache == nil || c.rows[i] < 0 {
		return unknownOutcome
	}
	return c.cache.outcomes[c.rows[i]]
}

// filterColumn appends to passed those of the nodes that are left that the policy lets pass. It
// stops when ctx ends.
func (c *Cycle) filterColumn(ctx context.Context, member int, left, passed []int32, s *scratch) []int32 {
	p := &c.policies[member]
	for j, i := range left {
		if j%checkInterval == 0 && ctx.Err() != nil {
			break
		}
		if p.signed && c.outcome(i) == passes {
			passed = append(passed, i)
			continue
		}
		if v := c.filterBoth(p, i); v.Reason == nil {
			passed = append(passed, i)
		} else {
			s.outcomes[i], s.numbers[i] = s.tally.find(member, v.Reason, v.Unresolvable), numbers{v.Have, v.Want}
		}
	}
	return passed
}

// filterBoth returns the verdict on a node with its nominated pods or, if it fits, without.
func (c *Cycle) filterBoth(p *prepared, i int32) policy.Verdict {
	v := p.filter.Filter(c.nodes[i])
	if v.Reason == nil && c.plain[i] != c.nodes[i] {
		v = p.filter.Filter(c.plain[i])
	}
	return v
}

// endColumns sets result.Kept and result.Rejected to the outcomes of all columns.
func (c *Cycle) endColumns(result *Result, count bool) {
	s := &result.scratch
	kept, rejected := slices.Grow(result.Kept, len(c.nodes)), result.Rejected
	for i, o := range s.outcomes {
		if o == fits {
			kept = append(kept, int32(i))
			continue
		}
		why := &s.tally[o]
		if count {
			why.nodes++
			continue
		}
		if c.nodes[i] == nil {
			why.nodes++ // an unknown node has no name
		} else {
			why.count(int32(i), s.numbers[i])
		}
		rejected = append(rejected, Rejected{int32(i), why.reason, why.unresolvable})
	}
	result.Kept, result.Rejected, result.Record.Fit = kept, rejected, len(kept)
}
