package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// checkInterval is after how many nodes of a column the context is checked.
const checkInterval = 16

// Cycle is one attempt to schedule a pod: its policies, each prepared once, and what they have said
// so far. FilterNode, Fits and Verdict may be called concurrently, but not at the same time
// as other methods, and FilterNode not for the same node.
//
// What always holds:
//   - A column is what one policy says about the nodes that are left, in order: those that every
//     complete column before it let pass. All other nodes have the outcome of the first policy that
//     rejected them.
//   - A column counts only when it is complete. If the policy fails within it and has
//     failurePolicy: Ignore, the nodes that were left before it are left again, and from then on
//     the Cycle ignores the policy, and caches no outcomes of filters.
type Cycle struct {
	engine      *Engine
	pod         *corev1.Pod
	view        *snapshot.View
	nominations *nominations
	err         error // of Begin: every call fails with it

	policies []prepared   // by member
	scoring  []int        // the members that score nodes
	failures atomic.Int32 // how many members are ignored

	// signature is the same for all pods with the same results of the policies with a signature:
	// see nodeCache.
	signature []byte
	slots     int // how many scores of a node are cached
	// signedFilters is true if all filters have a signature.
	signedFilters bool
	cache         *nodeCache // for the signature; nil: nothing is cached

	// nodes are those of the present call, with their nominated pods, and plain are they without. A
	// node fits if it fits both ways. rows are those of nodes in the cache, or -1: only with a
	// cache.
	nodes, plain []*snapshot.Node
	rows         []int32

	passed   atomic.Int64 // nodes, by FilterNode
	mu       sync.Mutex
	rejected []*snapshot.Node // by FilterNode
	tally    tally            // of rejected
	failure  error            // of FilterNode
}

// prepared is one policy, prepared for the pod.
type prepared struct {
	skipped    bool
	countsPods bool                        // it counts pods on nodes
	ignored    atomic.Pointer[PolicyError] // nil: it has not failed
	took       time.Duration

	filter    policy.Filter         // or nil
	explainer policy.Explainer      // or nil
	score     policy.Score          // or nil; also nil without a weight
	normalize policy.NormalizeScore // or nil
	rows      policy.ScoreRows      // or nil

	signed bool // the nodes that filter lets pass are cached
	slot   int  // index of its scores in the cache; -1: they are not cached
}

// Begin prepares every policy for a pod: trimmed (snapshot.TrimPod), and not changed. view is empty
// without a cluster. The error is a *PolicyError, or the cause of the context's end: then every
// call of the Cycle fails with it, so that it is recorded.
func (e *Engine) Begin(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (*Cycle, error) {
	c := &Cycle{engine: e, pod: pod, view: view, nominations: e.nominations(view), policies: make([]prepared, len(e.members))}
	c.err = c.prepare(ctx)
	return c, c.err
}

// Applies reports whether any policy applies to the pod.
func (c *Cycle) Applies() bool { return c.any(func(*prepared) bool { return true }) }

// CountsPods reports whether a policy that applies to the pod counts pods on nodes: see
// [policy.Inputs].
func (c *Cycle) CountsPods() bool { return c.any(func(p *prepared) bool { return p.countsPods }) }

// Filters reports whether any policy may reject nodes.
func (c *Cycle) Filters() bool { return c.any(func(p *prepared) bool { return p.filter != nil }) }

// Scores reports whether nodes can differ in their totals.
func (c *Cycle) Scores() bool { return c.Ranks() || c.engine.reserves && c.Applies() }

// Ranks reports whether any policy scores the pod.
func (c *Cycle) Ranks() bool { return len(c.scoring) > 0 }

// Signature returns a string that is equal for pods with the same verdicts and scores, whatever the
// view: see [policy.Signature]. ok is false if a policy that applies to the pod has no
// signature, allocates something to it, normalizes its scores over the nodes of a request, or has
// failed.
func (c *Cycle) Signature() (signature string, ok bool) {
	alone := c.any(func(p *prepared) bool {
		_, reserves := p.filter.(*ledgerLimit)
		return reserves || !p.signed || p.normalize != nil
	})
	if alone || c.failures.Load() > 0 {
		return "", false
	}
	return string(c.signature), true
}

// any reports whether a policy that applies to the pod and has not failed is so.
func (c *Cycle) any(is func(*prepared) bool) bool {
	for m := range c.policies {
		if p := &c.policies[m]; p.applies() && is(p) {
			return true
		}
	}
	return false
}

// applies reports whether the policy applies to the pod, and has not failed.
func (p *prepared) applies() bool { return !p.skipped && p.ignored.Load() == nil }

// Request is the input of one call: a pod, a view, and nodes.
type Request struct {
	// Pod and View are those of [Engine.Begin].
	Pod  *corev1.Pod
	View *snapshot.View
	// Nodes are the requested nodes, each once. They are nodes of the View, nodes that exist only
	// in the request, or nil for unknown names.
	Nodes []*snapshot.Node
	// Rows are the rows of Nodes, in the same order, and -1 for nodes that are not those of the
	// View. If it is nil, the engine reads them from the nodes, which takes longer.
	Rows []int32
}

// Result is the result of a Request. The next call with the same Result reuses its slices, but not
// its Record. The zero Result is ready to use. After an error only its Record is valid.
type Result struct {
	// Kept are the nodes to respond with, as ascending indices into Request.Nodes.
	Kept []int32
	// Rejected are the nodes that do not fit, in the order of the request.
	Rejected []Rejected
	// Totals are the totals of the nodes in the order of the request, each in 0..Record.MaxTotal;
	// only Score sets them.
	Totals []int64
	// Record is the decision with its reasons. The caller sets its Time, Duration, Verb and
	// Profile.
	Record *decision.Record
	// Scores are those of all scored nodes if Record.Top has any, and undefined otherwise. The next
	// request overwrites them, unless the caller replaces the field with another value or nil.
	Scores *decision.Scores

	scratch scratch
}

// Rejected is one node that does not fit.
type Rejected struct {
	Index        int32 // into Request.Nodes
	Reason       *policy.Reason
	Unresolvable bool
}

// scratch is memory of one call whose size depends on the number of nodes. It belongs to a Result
// and is reused. Slices without another order are in that of the nodes.
type scratch struct {
	all      []*snapshot.Node // of a Choice
	asked    []int32          // their rows
	nodes    []*snapshot.Node // with their nominated pods
	rows     []int32
	outcomes []int32   // fits, or an index into tally
	numbers  []numbers // of rejected nodes
	tally    tally
	left     [2][]int32 // indices of the nodes that are left before and after a column
	best     []int32    // positions of the shortlist, or of nodes that Best may choose
	together []int32    // the rows that a policy scores together
	totals   []int64    // in the order of the scored indices, as are the scores
	scores   [][]int64  // by member
	raw      []int64    // of one policy, as Score returned them
}

// prepare calls Prepare of every policy. Outboard itself, the first member, comes before them.
func (c *Cycle) prepare(ctx context.Context) error {
	if c.engine.bypass {
		for i := range c.policies {
			c.policies[i].skipped = true
		}
		return context.Cause(ctx)
	}
	if size := snapshot.PodSize(c.pod); size > snapshot.MaxPod && c.pod.Spec.NodeName == "" {
		limit := always{Reason: PodTooLarge, Unresolvable: true, Have: snapshot.MaxPod, Want: size}
		c.policies[outboard].filter = limit
		return context.Cause(ctx)
	}
	c.policies[outboard].skipped, c.signedFilters = true, true
	for i, m := range c.engine.members {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if i == outboard {
			continue
		}
		_, err := c.column(ctx, i, func() error {
			cycle, err := m.Policy.Prepare(ctx, c.pod, c.view)
			if err != nil {
				return err
			}
			return c.add(i, cycle)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// always is the Filter that rejects every node.
type always policy.Verdict

func (a always) Filter(*snapshot.Node) policy.Verdict { return policy.Verdict(a) }

// add adds the methods of the cycle of a member.
func (c *Cycle) add(member int, cycle policy.Cycle) error {
	m, p := &c.engine.members[member], &c.policies[member]
	if p.skipped = cycle == nil; cycle == nil {
		return nil
	}
	filter, filters := cycle.(policy.Filter)
	score, scores := cycle.(policy.Score)
	if !filters && !scores {
		// Usually the methods are on *T and the cycle is a T. Report it instead of ignoring the
		// policy.
		return fmt.Errorf("its cycle is a %T, which neither filters nor scores", cycle)
	}
	var signed bool
	c.signature, signed = appendSignature(c.signature, member, cycle)
	if scores && m.Weight > 0 {
		c.scoring = append(c.scoring, member)
		p.score, p.slot = score, -1
		p.normalize, _ = cycle.(policy.NormalizeScore)
		p.rows, _ = cycle.(policy.ScoreRows)
		if signed && p.rows == nil {
			p.slot = c.slots
			c.slots++
		}
	}
	if reader, ok := m.Policy.(policy.InputReader); ok {
		p.countsPods = reader.Inputs().CountsPods
	}
	p.filter = filter
	p.explainer, _ = cycle.(policy.Explainer)
	if reserver, reserves := m.Policy.(policy.Reserver); reserves {
		limit := &ledgerLimit{reserver: reserver, filter: filter, explainer: p.explainer, pod: c.pod, view: c.view}
		for pool := range c.view.Pools() {
			if len(pool.Pods) >= snapshot.MaxLedgerPods {
				limit.pools = append(limit.pools, pool)
			}
		}
		p.filter, p.explainer = limit, limit
		signed = signed && len(limit.pools) == 0
	}
	p.signed = signed
	c.signedFilters = c.signedFilters && (signed || p.filter == nil)
	return nil
}

// decide calls code for a call about the nodes, and completes result.Record in any case.
func (c *Cycle) decide(ctx context.Context, nodes []*snapshot.Node, rows []int32, result *Result, code func() error) error {
	result.reset(c.newRecord(len(nodes)))
	err := cmp.Or(c.err, context.Cause(ctx))
	if err == nil {
		s := &result.scratch
		s.tally = s.tally[:0]
		c.plain, c.nodes = nodes, c.nominations.beside(nodes, c.pod, s)
		if c.cache == nil && len(nodes) >= minCachedNodes {
			c.TakeNodeCache()
			defer c.ReturnNodeCache()
		}
		if c.cache != nil {
			c.rows = c.cacheRows(rows, s)
		}
		err = code()
	}
	result.Record.Policies, result.Record.MaxTotal = c.recordPolicies(), c.maxTotal()
	if err != nil {
		result.reset(result.Record)
		result.Record.Error = err.Error()
		return err
	}
	result.Record.Rejections = result.scratch.tally.rejections(c.engine.members, nodes)
	return nil
}

func (r *Result) reset(record *decision.Record) {
	r.Kept, r.Rejected, r.Totals, r.Record = r.Kept[:0], r.Rejected[:0], r.Totals[:0], record
}

// column calls code of a member, and measures its time. The column is complete unless the member
// failed and is ignored. The error is the member's *PolicyError, unless the request was canceled:
// then no policy is to ignore, and the error says how much time the member had taken.
func (c *Cycle) column(ctx context.Context, member int, code func() error) (complete bool, err error) {
	var started time.Time
	if c.engine.clock != nil {
		started = c.engine.clock()
	}
	err = guard(c.engine.members[member].Name, code)
	if c.engine.clock != nil {
		c.policies[member].took += c.engine.clock().Sub(started)
	}
	if failure := (*PolicyError)(nil); ctx.Err() != nil && !(errors.As(err, &failure) && failure.Stack != nil) {
		if err = context.Cause(ctx); c.engine.clock != nil {
			err = fmt.Errorf("policy %s had taken %.1f s: %w", c.engine.members[member].Name, c.policies[member].took.Seconds(), err)
		}
		return false, err
	}
	return err == nil, c.unlessIgnored(member, err)
}

// unlessIgnored returns the error of a member, which guard returned, or nil if the member is to be
// ignored from now on.
func (c *Cycle) unlessIgnored(member int, err error) error {
	failure := (*PolicyError)(nil)
	if !errors.As(err, &failure) || c.engine.members[member].FailurePolicy != policy.Ignore {
		return err
	}
	if p := &c.policies[member]; p.ignored.CompareAndSwap(nil, failure) {
		c.failures.Add(1)
	}
	return nil
}

// whole calls code again whenever a policy has begun to be ignored meanwhile: it may have decided
// about some nodes before.
func (c *Cycle) whole(code func() error) error {
	for {
		before := c.failures.Load()
		if err := code(); err != nil || c.failures.Load() == before {
			return err
		}
	}
}

// maxTotal returns the largest total that a node can have for the pod: from the policies that
// score it, or from all policies if none does, so that an allocation still counts.
func (c *Cycle) maxTotal() int64 {
	var total int64
	for _, m := range c.scoring {
		if c.policies[m].ignored.Load() == nil {
			total += c.engine.members[m].Weight * policy.MaxScore
		}
	}
	return cmp.Or(total, c.engine.maxTotal)
}
