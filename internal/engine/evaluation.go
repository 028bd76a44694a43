package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

const (
	// blockSize is how many nodes are evaluated together.
	blockSize = 256
	// checkInterval is after how many nodes of a policy the context is checked.
	checkInterval = 16
)

// evaluation holds the policies of an engine, prepared for one pod and one view, and their results for one request.
type evaluation struct {
	pod     *corev1.Pod
	view    *snapshot.View
	members []WeightedPolicy

	prepared bool
	state    []policyState // by member
	filters  []filterRef
	scorers  []scorerRef
	// explainers are used by Explain only.
	explainers []explainerRef

	// signature is the same for all pods with the same results of the policies with a signature; see [nodeCache].
	signature []byte
	unsigned  bool       // a policy that concerns the pod has no signature
	reserves  bool       // a policy that concerns the pod allocates something
	slots     int        // of the scores in the cache that are used
	cache     *nodeCache // for the signature; nil: nothing is cached
	rows      []int32    // of the requested nodes; valid only with a cache

	outcomes []outcome // of this request; the first ones are the same for every request

	clock     func() time.Time            // or nil
	claimants *snapshot.Fact[[]types.UID] // or nil
	holders   *holders                    // nil without claimants
	maxTotal  int64                       // see reachable
	tooLarge  policy.Verdict              // about every node, if the pod exceeds the limit of its size
	failure   error                       // of a policy that passes has called
	again     bool                        // a member failed and is ignored: decide once more, without it
}

type policyState struct {
	unconcerned bool
	ignored     error
	took        time.Duration // in this request
}

type filterRef struct {
	member int
	filter policy.Filter
	signed bool // the nodes that it lets pass are cached
}

type explainerRef struct {
	member    int
	explainer policy.Explainer
}

type scorerRef struct {
	member    int
	weight    int64
	score     policy.Score
	normalize policy.NormalizeScore // or nil
	rows      policy.ScoreRows      // or nil
	slot      int                   // index of its scores in the cache; -1: they are not cached
}

// newEvaluation returns an evaluation whose policies are not prepared yet.
func (e *Engine) newEvaluation(pod *corev1.Pod, view *snapshot.View) *evaluation {
	ev := &evaluation{
		pod: pod, view: view, members: e.members, state: make([]policyState, len(e.members)),
		clock: e.clock, claimants: e.claimants, maxTotal: e.maxTotal,
	}
	if e.claimants != nil {
		ev.holders = &e.holders
	}
	return ev
}

// forget drops everything except which members are ignored.
func (ev *evaluation) forget() {
	ev.prepared, ev.again = false, false
	clear(ev.filters) // so that old cycles can be garbage-collected
	clear(ev.scorers)
	clear(ev.explainers)
	ev.filters, ev.scorers, ev.explainers = ev.filters[:0], ev.scorers[:0], ev.explainers[:0]
	ev.signature, ev.unsigned, ev.slots = ev.signature[:0], false, 0
	ev.reserves = false
	ev.tooLarge = policy.Verdict{}
}

// run prepares the policies and calls decide. When a policy fails that can be ignored, it calls reset and does both again without it.
func (ev *evaluation) run(ctx context.Context, reset func(), decide func(*evaluation) error) error {
	err := ev.once(ctx, decide)
	for ev.again {
		ev.forget()
		reset()
		err = ev.once(ctx, decide)
	}
	return err
}

// once prepares the policies and calls decide. If a policy fails, the error is its *PolicyError, unless the request was canceled: then
// no policy is to blame or to ignore.
func (ev *evaluation) once(ctx context.Context, decide func(*evaluation) error) error {
	ev.failure = nil
	ev.resetOutcomes()
	err := ev.prepare(ctx)
	if err == nil {
		err = decide(ev)
	}
	failure := (*PolicyError)(nil)
	switch {
	case !errors.As(cmp.Or(ev.failure, err), &failure):
		return err
	case failure.Stack == nil && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	failed := slices.IndexFunc(ev.members, func(m WeightedPolicy) bool { return m.Name == failure.Policy })
	if ev.members[failed].FailurePolicy == policy.Ignore {
		ev.state[failed] = policyState{ignored: failure}
		ev.again = true
	}
	return failure
}

// prepare calls Prepare once for every member that is not ignored.
func (ev *evaluation) prepare(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if ev.prepared {
		return nil
	}
	if size := snapshot.PodSize(ev.pod); size > snapshot.MaxPod && ev.pod.Spec.NodeName == "" {
		ev.tooLarge = policy.Verdict{Reason: PodTooLarge, Unresolvable: true, Have: snapshot.MaxPod, Want: size}
		ev.maxTotal, ev.unsigned, ev.prepared = maxTotal(ev.members), true, true
		return nil
	}
	for i, m := range ev.members {
		if ev.state[i].ignored != nil {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		started := ev.now()
		err := guard(m.Name, func() error {
			cycle, err := m.Policy.Prepare(ctx, ev.pod, ev.view)
			ev.took(i, started)
			if err != nil {
				return err
			}
			return ev.add(i, cycle)
		})
		if err != nil {
			return err
		}
	}
	ev.maxTotal = ev.reachable()
	ev.prepared = true
	return nil
}

// add adds the methods of the cycle of a member.
func (ev *evaluation) add(member int, cycle policy.Cycle) error {
	m := &ev.members[member]
	f, filters := cycle.(policy.Filter)
	s, scores := cycle.(policy.Score)
	ev.state[member].unconcerned = cycle == nil
	if cycle != nil && !filters && !scores {
		// Usually the methods are on *T and the cycle is a T. Report it instead of ignoring the policy.
		return fmt.Errorf("its cycle is a %T, which neither filters nor scores", cycle)
	}
	signed := ev.sign(member, cycle)
	reserver, reserves := m.Policy.(policy.Reserver)
	ev.unsigned = ev.unsigned || cycle != nil && !signed
	ev.reserves = ev.reserves || cycle != nil && reserves
	if filters {
		ev.filters = append(ev.filters, filterRef{member, f, signed})
	}
	if scores && m.Weight > 0 {
		n, _ := cycle.(policy.NormalizeScore)
		rows, _ := cycle.(policy.ScoreRows)
		slot := -1
		if signed && n == nil && rows == nil && ev.slots < cachedScores {
			slot = ev.slots
			ev.slots++
		}
		ev.scorers = append(ev.scorers, scorerRef{member, m.Weight, s, n, rows, slot})
	}
	if x, ok := cycle.(policy.Explainer); ok {
		ev.explainers = append(ev.explainers, explainerRef{member, x})
	}
	if cycle != nil && reserves {
		limit := newLedgerLimit(reserver, ev.pod, ev.view)
		ev.unsigned = ev.unsigned || len(limit.pools) > 0
		ev.filters = append(ev.filters, filterRef{member, limit, signed && len(limit.pools) == 0})
		ev.explainers = append(ev.explainers, explainerRef{member, limit})
	}
	return nil
}

// reachable returns the largest total that a node can have for the pod: from the policies that
// score it, or from all policies if none does, so that a claim still counts.
func (ev *evaluation) reachable() int64 {
	var total int64
	for i := range ev.scorers {
		total += ev.scorers[i].weight * policy.MaxScore
	}
	if total > 0 {
		return total
	}
	return maxTotal(ev.members)
}

// filter sets result.Kept and result.Rejected. plain are the nodes without their nominated pods:
// where they differ from nodes, both must fit.
func (ev *evaluation) filter(ctx context.Context, nodes, plain []*snapshot.Node, result *Result) error {
	kept, rejected := slices.Grow(result.Kept, len(nodes)), result.Rejected
	var b block
	for first := 0; first < len(nodes); first += blockSize {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		asked := nodes[first:min(first+blockSize, len(nodes))]
		if err := ev.filterBlock(ctx, asked, first, &b); err != nil {
			return err
		}
		for j := range asked {
			o := b.outcomes[j]
			if o == fits && asked[j] != plain[first+j] {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				v, member, err := ev.rejection(ev.filters, plain[first+j], false)
				if err != nil {
					return err
				}
				if !v.Fits() {
					o, b.numbers[j] = ev.outcome(member, v.Reason, v.Unresolvable), numbers{v.Have, v.Want}
				}
			}
			if o == fits {
				kept = append(kept, int32(first+j))
				continue
			}
			why := &ev.outcomes[o]
			if o == unknown {
				why.nodes++ // an unknown node has no name
			} else {
				why.count(int32(first+j), b.numbers[j])
			}
			rejected = append(rejected, Rejected{int32(first + j), why.reason, why.unresolvable})
		}
	}
	result.Kept, result.Rejected = kept, rejected
	return nil
}

// block holds the results for the nodes of one block, by position in the block.
type block struct {
	outcomes [blockSize]int32
	numbers  [blockSize]numbers     // of rejected nodes
	cached   [blockSize]*cachedNode // nil: nothing is cached
	left     [blockSize]int32       // positions of the nodes that all policies so far let pass
}

// filterBlock computes the outcomes for the nodes; first is the index of the first one in the request. It calls one
// policy after the other: a policy gets only the nodes that the policies before it let pass, and its time is measured
// once for all of them.
func (ev *evaluation) filterBlock(ctx context.Context, nodes []*snapshot.Node, first int, b *block) error {
	left := b.left[:0]
	for j, n := range nodes {
		if n == nil {
			b.outcomes[j] = unknown
			continue
		}
		b.cached[j] = ev.cachedNode(n, first+j)
		left = append(left, int32(j))
	}
	for i := range ev.filters {
		f := &ev.filters[i]
		started := ev.now()
		err := guard(ev.members[f.member].Name, func() error { left = ev.filterBy(ctx, f, nodes, left, b); return nil })
		ev.took(f.member, started)
		if err = cmp.Or(err, context.Cause(ctx)); err != nil {
			return err
		}
	}
	if v := ev.tooLarge; !v.Fits() {
		for _, at := range left {
			b.outcomes[at], b.numbers[at] = ev.outcome(engineItself, v.Reason, v.Unresolvable), numbers{v.Have, v.Want}
		}
		return nil
	}
	for _, at := range left {
		b.outcomes[at] = fits
		if c := b.cached[at]; c != nil {
			c.fits = true
		}
	}
	return nil
}

// filterBy returns the positions of the nodes that the filter lets pass, in the memory of left. It stops when ctx ends.
func (ev *evaluation) filterBy(ctx context.Context, f *filterRef, nodes []*snapshot.Node, left []int32, b *block) []int32 {
	passed := left[:0] // overwrites only entries that were read before
	for j, at := range left {
		if j%checkInterval == 0 && ctx.Err() != nil {
			break
		}
		if c := b.cached[at]; f.signed && c != nil && c.fits {
			passed = append(passed, at)
			continue
		}
		if v := f.filter.Filter(nodes[at]); v.Reason == nil {
			passed = append(passed, at)
		} else {
			b.outcomes[at], b.numbers[at] = ev.outcome(f.member, v.Reason, v.Unresolvable), numbers{v.Have, v.Want}
		}
	}
	return passed
}

// now returns the time, or the zero time without a clock.
func (ev *evaluation) now() time.Time {
	if ev.clock == nil {
		return time.Time{}
	}
	return ev.clock()
}

// took adds the time since started to the member's time in this request.
func (ev *evaluation) took(member int, started time.Time) {
	if ev.clock != nil {
		ev.state[member].took += ev.clock().Sub(started)
	}
}

// rejection calls one filter after the other until one rejects the node, and returns its verdict and member. passed says that the node
// passes the filters with a signature. With an error, member is the one that failed.
func (ev *evaluation) rejection(filters []filterRef, n *snapshot.Node, passed bool) (verdict policy.Verdict, member int, err error) {
	if !ev.tooLarge.Fits() {
		return ev.tooLarge, engineItself, nil
	}
	for i := range filters {
		f := &filters[i]
		if passed && f.signed {
			continue
		}
		err = guard(ev.members[f.member].Name, func() error { verdict = f.filter.Filter(n); return nil })
		if err != nil || !verdict.Fits() {
			return verdict, f.member, err
		}
	}
	return policy.Verdict{}, 0, nil
}

// passes reports whether every filter lets the node pass. It is for hypothetical nodes, which do not count as outcomes. After an error it
// returns false, and keeps the error in failure.
func (ev *evaluation) passes(n *snapshot.Node) bool {
	if ev.failure != nil {
		return false
	}
	verdict, _, err := ev.rejection(ev.filters, n, false)
	ev.failure = err
	return err == nil && verdict.Fits()
}

// fitsBeside reports whether every filter lets the node pass both with the nominated pods that count for the pod and without them. It is
// for hypothetical nodes, as passes.
func (ev *evaluation) fitsBeside(ns *nominations, n *snapshot.Node, certain bool) bool {
	counting := ns.counting(n, ev.pod, certain)
	return ev.passes(counting) && (counting == n || ev.passes(n))
}

// leavesOut reports whether any member is ignored.
func (ev *evaluation) leavesOut() bool {
	return slices.ContainsFunc(ev.state, func(s policyState) bool { return s.ignored != nil })
}
