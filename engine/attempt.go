package engine

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Attempt is the policies prepared for one attempt to schedule a pod. They are asked about one node after the other, as
// kube-scheduler's framework asks its plugins, and not about all nodes of a [Request] at once. Filter and Judge may be called
// concurrently, and not at the same time as Score.
//
// A policy that panics in Filter and has failurePolicy: Ignore is left out from then on: the nodes that it has rejected before stay
// rejected.
type Attempt struct {
	engine *Engine
	ev     *evaluation
	failed []atomic.Bool // by filter: it is left out

	mu       sync.Mutex
	passed   int
	rejected []*snapshot.Node
	err      error // of a policy that fails
}

// NewAttempt prepares the policies for a pod. The error is as for Filter of Engine.
func (e *Engine) NewAttempt(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (*Attempt, error) {
	req := Request{Pod: pod, View: view}
	ev, prepared := e.prepared.take(req)
	ev.begin(e, req, prepared)
	nothing := func(*evaluation) error { return nil }
	err := ev.attempt(ctx, nothing)
	for ev.again {
		ev.forget()
		err = ev.attempt(ctx, nothing)
	}
	if err != nil {
		return nil, err
	}
	return &Attempt{engine: e, ev: ev, failed: make([]atomic.Bool, len(ev.filters))}, nil
}

// Filters says whether a policy may reject nodes.
func (a *Attempt) Filters() bool { return len(a.ev.filters) > 0 }

// Scores says whether nodes can differ in their totals.
func (a *Attempt) Scores() bool {
	return len(a.ev.scorers) > 0 || a.ev.claimants != nil && a.Concerns()
}

// Concerns says whether any policy concerns the pod.
func (a *Attempt) Concerns() bool {
	return slices.ContainsFunc(a.ev.state, func(s policyState) bool { return !s.unconcerned && s.ignored == nil })
}

// Signature returns what is the same for all pods about which the policies say the same, whatever the view: see [policy.Signature].
// ok is false if a policy that concerns the pod has none, or fails.
func (a *Attempt) Signature() (signature string, ok bool) {
	if a.ev.unsigned || a.ev.leavesOut() {
		return "", false
	}
	return string(a.ev.signature), true
}

// Release gives up the attempt, so that what was prepared can be used by the next about the same pod and view. It must not be
// used any more.
func (a *Attempt) Release() { a.engine.prepared.put(a.ev) }

// Judge asks the policies about a node. A nil reason says that the pod fits. Nothing is recorded.
func (a *Attempt) Judge(n *snapshot.Node) (verdict policy.Verdict, err error) {
	verdict, _, err = a.ask(n)
	return verdict, err
}

// Filter is Judge for a node that the pod is to be placed on, and records the verdict.
func (a *Attempt) Filter(n *snapshot.Node) (policy.Verdict, error) {
	verdict, member, err := a.ask(n)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err != nil:
		a.err = err
	case verdict.Fits():
		a.passed++
	default:
		why := &a.ev.outcomes[a.ev.outcome(member, verdict.Reason, verdict.Unresolvable)]
		why.count(int32(len(a.rejected)), numbers{verdict.Have, verdict.Want})
		a.rejected = append(a.rejected, n)
	}
	return verdict, err
}

// ask asks one policy after the other until one rejects the node, and says which.
func (a *Attempt) ask(n *snapshot.Node) (verdict policy.Verdict, member int, err error) {
	asked := 0
	defer func() {
		if p := recover(); p != nil {
			m := &a.ev.members[a.ev.filters[asked].member]
			failure := &PolicyError{Policy: m.Name, Err: fmt.Errorf("panic: %v", p), Stack: debug.Stack()}
			if m.FailurePolicy != policy.Ignore {
				err = failure
				return
			}
			a.leaveOut(asked, failure)
			verdict, member, err = a.ask(n)
		}
	}()
	for ; asked < len(a.ev.filters); asked++ {
		f := &a.ev.filters[asked]
		if a.failed[asked].Load() {
			continue
		}
		if verdict = f.filter.Filter(n); verdict.Reason != nil {
			return verdict, f.member, nil
		}
	}
	return policy.Verdict{}, 0, nil
}

func (a *Attempt) leaveOut(filter int, failure *PolicyError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ev.state[a.ev.filters[filter].member].ignored = failure
	a.failed[filter].Store(true)
}

// Rejected are the nodes that Filter has rejected so far, in no order, which may not be written to.
func (a *Attempt) Rejected() []*snapshot.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clip(a.rejected)
}

// Record says what Filter has said so far. fit is how many nodes are left, of all that were asked about.
func (a *Attempt) Record(fit int) *decision.Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	record := a.engine.newRecord(Request{Pod: a.ev.pod, View: a.ev.key.view}, false)
	record.Asked = a.passed + len(a.rejected)
	record.Fit, record.Returned = fit, fit
	record.Policies, record.MaxTotal = a.ev.policies(), a.ev.maxTotal
	record.Rejections = a.ev.rejections(a.rejected)
	if a.err != nil {
		record.Error = a.err.Error()
	}
	return record
}

// Score is Score of Engine about the nodes that are left. What Filter has recorded is lost.
func (a *Attempt) Score(ctx context.Context, nodes []*snapshot.Node, result *Result) error {
	req := Request{Pod: a.ev.pod, View: a.ev.key.view, Nodes: nodes}
	a.rejected = nil
	return a.engine.decide(ctx, req, a.ev, true, result, func(ev *evaluation) error {
		result.Record.Fit, result.Record.Returned = len(nodes), len(nodes)
		return ev.score(ctx, a.engine.withNominated(req, &result.scratch), result)
	})
}
