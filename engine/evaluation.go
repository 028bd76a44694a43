package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// checkEvery is how many nodes are judged between two looks at the context.
const checkEvery = 256

// evaluation is what is known about one pod over one view: the prepared
// policies, and what they said about each node.
type evaluation struct {
	key     evaluationKey
	members []Member
	pod     *corev1.Pod

	prepared bool
	state    []memberState // by member
	filters  []filterRef
	scorers  []scorerRef

	cells    []cell    // by row of the view
	outcomes []outcome // what cell.outcome means
	complete bool      // every total in cells comes from one shortlist

	running int // the member whose code runs, for guarded; -1 is none
}

type evaluationKey struct {
	uid             types.UID
	resourceVersion string
	view            *snapshot.View
}

func keyOf(req Request) evaluationKey {
	return evaluationKey{req.Pod.UID, req.Pod.ResourceVersion, req.View}
}

type memberState struct {
	unconcerned bool
	skipped     error
}

type filterRef struct {
	member int
	filter policy.Filter
}

type scorerRef struct {
	member    int
	weight    int64
	score     policy.Score
	normalize policy.NormalizeScore // or nil
}

// cell is what is known about one node.
type cell struct {
	outcome int32 // 0: not filtered; fits; or an index into outcomes
	total   int32 // of a shortlist; -1: not scored
}

const fits int32 = 1

// outcome is one way in which nodes were rejected.
type outcome struct {
	member       int // -1: the engine itself
	reason       *policy.Reason
	unresolvable bool
	nearest      []decision.Miss
}

// begin readies the evaluation for a request. What it knows is kept if the pod
// and the view are the same.
func (ev *evaluation) begin(e *Engine, req Request, same bool) {
	ev.pod, ev.running = req.Pod, -1
	if same {
		return
	}
	ev.members = e.members
	ev.state = make([]memberState, len(e.members))
	ev.forget()
}

// forget drops everything but which members are left out.
func (ev *evaluation) forget() {
	ev.prepared, ev.complete = false, false
	clear(ev.filters) // so that old cycles can be collected
	clear(ev.scorers)
	ev.filters, ev.scorers = ev.filters[:0], ev.scorers[:0]
	ev.cells = slices.Grow(ev.cells[:0], ev.key.view.Rows())[:ev.key.view.Rows()]
	for i := range ev.cells {
		ev.cells[i] = cell{total: -1}
	}
	ev.outcomes = append(ev.outcomes[:0], outcome{}, outcome{}, outcome{member: -1, reason: NodeUnknown})
}

// unknown is the outcome of nodes that are not known.
const unknown int32 = 2

// prepare calls Prepare of every member that is not left out, once.
func (ev *evaluation) prepare(ctx context.Context) error {
	if ev.prepared {
		return nil
	}
	for i, m := range ev.members {
		if ev.state[i].skipped != nil {
			continue
		}
		ev.running = i
		cycle, err := m.Policy.Prepare(ctx, ev.pod, ev.key.view)
		if err != nil {
			return ev.failed(i, err)
		}
		ev.state[i].unconcerned = cycle == nil
		if f, ok := cycle.(policy.Filter); ok {
			ev.filters = append(ev.filters, filterRef{i, f})
		}
		if s, ok := cycle.(policy.Score); ok && m.Weight > 0 {
			n, _ := cycle.(policy.NormalizeScore)
			ev.scorers = append(ev.scorers, scorerRef{i, m.Weight, s, n})
		}
	}
	ev.running = -1
	ev.prepared = true
	return nil
}

// filter sets result.Kept and result.Rejected.
func (ev *evaluation) filter(ctx context.Context, nodes []*snapshot.Node, result *Result) error {
	result.Kept, result.Rejected = result.Kept[:0], result.Rejected[:0]
	outcomes := result.scratch.outcomes[:len(nodes)]
	view := ev.key.view
	for i, n := range nodes {
		if i%checkEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var o int32
		switch {
		case n == nil:
			o = unknown
		case view.At(n.Row()) == n:
			c := &ev.cells[n.Row()]
			if c.outcome == 0 {
				c.outcome = ev.judge(n)
			}
			o = c.outcome
		default:
			o = ev.judge(n)
		}
		outcomes[i] = o
		if o == fits {
			result.Kept = append(result.Kept, int32(i))
			continue
		}
		why := &ev.outcomes[o]
		result.Rejected = append(result.Rejected, Rejected{int32(i), why.reason, why.unresolvable})
	}
	ev.running = -1
	return nil
}

// judge asks every filter about the node until one rejects it.
func (ev *evaluation) judge(n *snapshot.Node) int32 {
	for i := range ev.filters {
		f := &ev.filters[i]
		ev.running = f.member
		if v := f.filter.Filter(n); v.Reason != nil {
			return ev.reject(f.member, n, v)
		}
	}
	return fits
}

// passes says whether every filter lets the node pass. It is for nodes as they
// might be, of which nothing is to be noted.
func (ev *evaluation) passes(n *snapshot.Node) bool {
	for i := range ev.filters {
		ev.running = ev.filters[i].member
		if !ev.filters[i].filter.Filter(n).Fits() {
			return false
		}
	}
	return true
}

// reject returns the outcome for the verdict, and keeps the node in mind if it
// came close to fitting.
func (ev *evaluation) reject(member int, n *snapshot.Node, v policy.Verdict) int32 {
	i := slices.IndexFunc(ev.outcomes, func(o outcome) bool {
		return o.reason == v.Reason && o.member == member && o.unresolvable == v.Unresolvable
	})
	if i < 0 {
		i = len(ev.outcomes)
		ev.outcomes = append(ev.outcomes, outcome{member: member, reason: v.Reason, unresolvable: v.Unresolvable})
	}
	o := &ev.outcomes[i]
	miss := decision.Miss{Node: n.Name, Have: v.Have, Want: v.Want}
	at := len(o.nearest)
	for at > 0 && distance(miss) < distance(o.nearest[at-1]) {
		at--
	}
	if at < decision.NearestMisses {
		if len(o.nearest) == decision.NearestMisses {
			o.nearest = o.nearest[:decision.NearestMisses-1]
		}
		o.nearest = slices.Insert(o.nearest, at, miss)
	}
	return int32(i)
}

// distance is how far a node is from fitting. Numbers that overflow are far.
func distance(m decision.Miss) uint64 {
	if m.Want >= m.Have {
		return uint64(m.Want) - uint64(m.Have)
	}
	return uint64(m.Have) - uint64(m.Want)
}

// guarded runs decide, and makes a panic of a policy the error of that policy.
func (ev *evaluation) guarded(decide func() error) (err error) {
	defer func() {
		if ev.running < 0 {
			return // not in a policy's code: ours is not to be hidden
		}
		if p := recover(); p != nil {
			err = &PolicyError{Policy: ev.members[ev.running].Name, Err: fmt.Errorf("panic: %v", p), Stack: debug.Stack()}
			if ev.members[ev.running].OnError == Skip {
				ev.state[ev.running].skipped = err
			}
		}
	}()
	return decide()
}

// failed makes err the error of the member. A cancelled request is nobody's
// error and leaves nobody out.
func (ev *evaluation) failed(member int, err error) error {
	ev.running = -1
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	err = &PolicyError{Policy: ev.members[member].Name, Err: err}
	if ev.members[member].OnError == Skip {
		ev.state[member].skipped = err
	}
	return err
}

// leaveOut says whether err only means that a policy is to be left out, and
// readies the evaluation for another run without it.
func (ev *evaluation) leaveOut(err error) bool {
	if !slices.ContainsFunc(ev.state, func(s memberState) bool { return s.skipped != nil && errors.Is(err, s.skipped) }) {
		return false
	}
	ev.forget()
	return true
}
