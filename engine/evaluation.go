package engine

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

const (
	// blockSize is how many nodes are judged together.
	blockSize = 256
	// checkInterval is after how many nodes that a policy is asked about the context is checked.
	checkInterval = 16
)

// evaluation is the policies of an engine prepared for one pod over one view, and what they say in one request.
type evaluation struct {
	key     evaluationKey
	members []WeightedPolicy
	pod     *corev1.Pod

	prepared bool
	state    []policyState // by member
	filters  []filterRef
	scorers  []scorerRef
	// explainers are asked by Explain only.
	explainers []explainerRef

	// signature tells which pods the policies with a signature say the same for; see [nodeCache].
	signature []byte
	cache     *nodeCache // of the signature; nil: nothing is cached
	rows      []int32    // of the nodes asked; means something with a cache

	outcomes []outcome // of this request; those that every request begins with first

	clock     func() time.Time            // or nil
	claimants *snapshot.Fact[[]types.UID] // or nil
	maxTotal  int64                       // see reachable
	running   int                         // the member whose code runs, for guarded; -1 is none
	again     bool                        // a member failed and is left out: decide once more, without it
}

type evaluationKey struct {
	uid             types.UID
	resourceVersion string
	view            *snapshot.View
}

func keyOf(req Request) evaluationKey {
	return evaluationKey{req.Pod.UID, req.Pod.ResourceVersion, req.View}
}

// identified says whether the key tells one pod from all others.
func (k evaluationKey) identified() bool { return k.uid != "" && k.resourceVersion != "" }

type policyState struct {
	unconcerned bool
	ignored     error
	took        time.Duration // in this request
}

type filterRef struct {
	member int
	filter policy.Filter
	signed bool // what it lets pass is cached
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
	slot      int                   // of its scores in the cache; -1: they are not cached
}

// begin readies the evaluation for a request. What it knows is kept if the pod
// and the view are the same.
func (ev *evaluation) begin(e *Engine, req Request, same bool) {
	ev.pod, ev.running, ev.again = req.Pod, -1, false
	if same {
		for i := range ev.state {
			ev.state[i].took = 0
		}
		return
	}
	ev.clock, ev.claimants, ev.maxTotal = e.clock, e.claimants, e.maxTotal
	ev.members = e.members
	ev.state = make([]policyState, len(e.members))
	ev.forget()
}

// forget drops everything but which members are left out.
func (ev *evaluation) forget() {
	ev.prepared, ev.again = false, false
	clear(ev.filters) // so that old cycles can be collected
	clear(ev.scorers)
	clear(ev.explainers)
	ev.filters, ev.scorers, ev.explainers = ev.filters[:0], ev.scorers[:0], ev.explainers[:0]
	ev.signature = ev.signature[:0]
}

// attempt prepares the policies and decides. An error or panic of a policy
// becomes its *PolicyError.
func (ev *evaluation) attempt(ctx context.Context, decide func(*evaluation) error) (err error) {
	defer func() {
		if ev.running < 0 {
			return // not in a policy's code: a panic of ours is not to be hidden
		}
		if p := recover(); p != nil {
			err = ev.blame(fmt.Errorf("panic: %v", p), debug.Stack())
		}
	}()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ev.outcomes = append(ev.outcomes[:0], outcome{}, outcome{member: -1, reason: NodeUnknown})
	if err := ev.prepare(ctx); err != nil {
		return err
	}
	return decide(ev)
}

// prepare calls Prepare of every member that is not left out, once.
func (ev *evaluation) prepare(ctx context.Context) error {
	if ev.prepared {
		return nil
	}
	slots := 0 // of the cache that are taken
	for i, m := range ev.members {
		if ev.state[i].ignored != nil {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		started := ev.now()
		ev.running = i
		cycle, err := m.Policy.Prepare(ctx, ev.pod, ev.key.view)
		ev.took(i, started)
		if err != nil {
			return ev.failed(ctx, err)
		}
		f, filters := cycle.(policy.Filter)
		s, scores := cycle.(policy.Score)
		ev.state[i].unconcerned = cycle == nil
		if cycle != nil && !filters && !scores {
			// Usually methods on *T and a cycle that is a T: not to be passed over in silence.
			return ev.failed(ctx, fmt.Errorf("its cycle is a %T, which neither filters nor scores", cycle))
		}
		signed := ev.sign(i, cycle)
		if filters {
			ev.filters = append(ev.filters, filterRef{i, f, signed})
		}
		if scores && m.Weight > 0 {
			n, _ := cycle.(policy.NormalizeScore)
			slot := -1
			if signed && n == nil && slots < cachedScores {
				slot, slots = slots, slots+1
			}
			ev.scorers = append(ev.scorers, scorerRef{i, m.Weight, s, n, slot})
		}
		if x, ok := cycle.(policy.Explainer); ok {
			ev.explainers = append(ev.explainers, explainerRef{i, x})
		}
		ev.running = -1
	}
	ev.maxTotal = ev.reachable()
	ev.prepared = true
	return nil
}

// reachable is the largest total that a node can have for the pod: that of the policies that
// score it, or of all if none does, so that a claim still counts.
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

// filter sets result.Kept and result.Rejected. plain are the nodes without the pods
// nominated to them: one that differs must fit as well.
func (ev *evaluation) filter(ctx context.Context, nodes, plain []*snapshot.Node, result *Result) error {
	kept, rejected := slices.Grow(result.Kept, len(nodes)), result.Rejected
	var b block
	for first := 0; first < len(nodes); first += blockSize {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		asked := nodes[first:min(first+blockSize, len(nodes))]
		if err := ev.judgeBlock(ctx, asked, first, &b); err != nil {
			return err
		}
		for j := range asked {
			o := b.outcomes[j]
			if o == fits && asked[j] != plain[first+j] {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				o, b.numbers[j] = ev.judge(plain[first+j])
			}
			if o == fits {
				kept = append(kept, int32(first+j))
				continue
			}
			why := &ev.outcomes[o]
			if o == unknown {
				why.nodes++ // there is no node to name
			} else {
				why.count(int32(first+j), b.numbers[j])
			}
			rejected = append(rejected, Rejected{int32(first + j), why.reason, why.unresolvable})
		}
	}
	result.Kept, result.Rejected = kept, rejected
	return nil
}

// block is what is found out about the nodes of one block, by position in it.
type block struct {
	outcomes [blockSize]int32
	numbers  [blockSize]numbers     // of those that are rejected
	cached   [blockSize]*cachedNode // nil: nothing is cached
	left     [blockSize]int32       // positions of those that the policies let pass so far
}

// judgeBlock finds the outcomes for the nodes, of which the first has the given index in the request. It judges them one policy after
// the other: a policy sees what the policies before it let pass, and its time is taken once for all of them.
func (ev *evaluation) judgeBlock(ctx context.Context, nodes []*snapshot.Node, first int, b *block) error {
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
		ev.running = f.member
		passed := left[:0] // what is overwritten has been read
		for j, at := range left {
			if j%checkInterval == 0 && ctx.Err() != nil {
				ev.running = -1
				return context.Cause(ctx)
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
		left = passed
		ev.running = -1
		ev.took(f.member, started)
	}
	for _, at := range left {
		b.outcomes[at] = fits
		if c := b.cached[at]; c != nil {
			c.fits = true
		}
	}
	return nil
}

// now is the time, if time is taken.
func (ev *evaluation) now() time.Time {
	if ev.clock == nil {
		return time.Time{}
	}
	return ev.clock()
}

// took adds the time since started to what the member took in this request.
func (ev *evaluation) took(member int, started time.Time) {
	if ev.clock != nil {
		ev.state[member].took += ev.clock().Sub(started)
	}
}

// judge asks every filter about the node until one rejects it.
func (ev *evaluation) judge(n *snapshot.Node) (int32, numbers) {
	for i := range ev.filters {
		f := &ev.filters[i]
		ev.running = f.member
		v := f.filter.Filter(n)
		ev.running = -1
		if v.Reason != nil {
			return ev.outcome(f.member, v.Reason, v.Unresolvable), numbers{v.Have, v.Want}
		}
	}
	return fits, numbers{}
}

// passes says whether every filter lets the node pass. It is for nodes as they
// might be, which are not counted.
func (ev *evaluation) passes(n *snapshot.Node) bool {
	o, _ := ev.judge(n)
	return o == fits
}

// failed makes err the error of the running member. A cancelled request is
// nobody's error and leaves nobody out.
func (ev *evaluation) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		ev.running = -1
		return context.Cause(ctx)
	}
	return ev.blame(err, nil)
}

// blame makes err the error of the running member, and leaves it out if it may
// be left out.
func (ev *evaluation) blame(err error, stack []byte) error {
	m := &ev.members[ev.running]
	failure := &PolicyError{Policy: m.Name, Err: err, Stack: stack}
	if m.FailurePolicy == policy.Ignore {
		ev.state[ev.running] = policyState{ignored: failure}
		ev.again = true
	}
	ev.running = -1
	return failure
}

// leavesOut says whether a member is left out.
func (ev *evaluation) leavesOut() bool {
	return slices.ContainsFunc(ev.state, func(s policyState) bool { return s.ignored != nil })
}
