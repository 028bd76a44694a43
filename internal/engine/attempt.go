package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Attempt holds the policies prepared for one attempt to schedule a pod. It evaluates one node per call, as kube-scheduler's
// framework calls its plugins, instead of all nodes of a [Request] together. Filter, Fits and Evaluate may be called concurrently,
// but not at the same time as other methods, and Filter not for the same node.
//
// After a policy with failurePolicy: Ignore has panicked in Filter, the attempt ignores it. Nodes that it rejected before stay
// rejected.
type Attempt struct {
	engine  *Engine
	ev      *evaluation
	filters atomic.Pointer[[]filterRef] // without those of policies that are ignored
	signed  bool                        // all filters have a signature
	passed  atomic.Int64

	mu       sync.Mutex
	rejected []*snapshot.Node
	err      error // of the policy that failed
}

// NewAttempt prepares the policies for a pod. The error is as for Filter of Engine.
func (e *Engine) NewAttempt(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (*Attempt, error) {
	ev := e.newEvaluation(pod, view)
	if err := ev.run(ctx, func() {}, func(*evaluation) error { return nil }); err != nil {
		return nil, err
	}
	a := &Attempt{engine: e, ev: ev, signed: ev.signedFilters()}
	a.filters.Store(&ev.filters)
	return a, nil
}

// signedFilters reports whether all filters have a signature.
func (ev *evaluation) signedFilters() bool {
	return !slices.ContainsFunc(ev.filters, func(f filterRef) bool { return !f.signed })
}

// TakeNodeCache makes Filter and Fits use the cache for nodes, see the package documentation. No other attempt for a pod with the same
// signature uses it until Score or ReturnNodeCache.
func (a *Attempt) TakeNodeCache() { a.engine.caches.take(a.ev) }

// ReturnNodeCache lets other attempts use the cache that TakeNodeCache took; without it, it does nothing.
func (a *Attempt) ReturnNodeCache() { a.engine.caches.put(a.ev) }

// Filters reports whether any policy may reject nodes.
func (a *Attempt) Filters() bool { return len(a.ev.filters) > 0 || !a.ev.tooLarge.Fits() }

// Scores reports whether nodes can differ in their totals.
func (a *Attempt) Scores() bool {
	return len(a.ev.scorers) > 0 || a.ev.claimants != nil && a.Concerns()
}

// Ranks reports whether any policy scores the pod.
func (a *Attempt) Ranks() bool { return len(a.ev.scorers) > 0 }

// Concerns reports whether any policy is concerned with the pod.
func (a *Attempt) Concerns() bool {
	return slices.ContainsFunc(a.ev.state, func(s policyState) bool { return !s.unconcerned && s.ignored == nil })
}

// Signature returns a string that is equal for pods with the same verdicts and scores, whatever the view: see [policy.Signature].
// ok is false if a policy that is concerned with the pod has no signature, allocates something to it, normalizes its scores over the nodes
// of a request, or has failed.
func (a *Attempt) Signature() (signature string, ok bool) {
	normalizes := slices.ContainsFunc(a.ev.scorers, func(s scorerRef) bool { return s.normalize != nil })
	if a.ev.unsigned || a.ev.reserves || normalizes || a.ev.leavesOut() {
		return "", false
	}
	return string(a.ev.signature), true
}

// Evaluate returns the verdict on a node, and records nothing.
func (a *Attempt) Evaluate(n *snapshot.Node) (verdict policy.Verdict, err error) {
	verdict, _, err = a.evaluate(n, false)
	return verdict, err
}

// Fits reports whether the cache shows that the node of the View with this row and version fits, and records that: Filter returns
// the same for it. It does not load the node.
func (a *Attempt) Fits(row int, version uint64) bool {
	if a.ev.cache == nil || !a.signed {
		return false
	}
	if c := &a.ev.cache.nodes[row]; c.version != version || !c.fits {
		return false
	}
	a.passed.Add(1)
	return true
}

// Filter evaluates a node on which the pod may be placed, and records the verdict.
func (a *Attempt) Filter(n *snapshot.Node) (policy.Verdict, error) {
	cached := a.ev.cachedAt(n, n.Row())
	verdict, member, err := a.evaluate(n, cached != nil && cached.fits)
	if err == nil && verdict.Fits() {
		if cached != nil && len(*a.filters.Load()) == len(a.ev.filters) {
			cached.fits = true
		}
		a.passed.Add(1)
		return verdict, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.err = err
	} else {
		why := &a.ev.outcomes[a.ev.outcome(member, verdict.Reason, verdict.Unresolvable)]
		why.count(int32(len(a.rejected)), numbers{verdict.Have, verdict.Want})
		a.rejected = append(a.rejected, n)
	}
	return verdict, err
}

// evaluate returns the verdict and the member that rejects the node. fits means that the filters with a signature let the node pass.
func (a *Attempt) evaluate(n *snapshot.Node, fits bool) (verdict policy.Verdict, member int, err error) {
	verdict, member, err = a.ev.rejection(*a.filters.Load(), n, fits)
	if err != nil && a.ev.members[member].FailurePolicy == policy.Ignore {
		a.leaveOut(member, err)
		return a.evaluate(n, fits)
	}
	return verdict, member, err
}

func (a *Attempt) leaveOut(member int, failure error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ev.state[member].ignored = failure
	rest := slices.DeleteFunc(slices.Clone(*a.filters.Load()), func(f filterRef) bool { return f.member == member })
	a.filters.Store(&rest)
}

// Rejected returns the nodes that Filter has rejected so far, in no particular order. The caller must not write to them.
func (a *Attempt) Rejected() []*snapshot.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clip(a.rejected)
}

// Record returns the record of the verdicts of Filter so far. fit is the number of nodes that fit. If Filter was called for fewer nodes,
// because no policy can reject any, these are all nodes of the record.
func (a *Attempt) Record(fit int) *decision.Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	record := a.engine.newRecord(Request{Pod: a.ev.pod, View: a.ev.view})
	record.Nodes = max(fit, int(a.passed.Load())+len(a.rejected))
	record.Fit, record.Returned = fit, fit
	record.Policies, record.MaxTotal = a.ev.policies(), a.ev.maxTotal
	record.Rejections = a.ev.rejections(a.rejected)
	if a.err != nil {
		record.Error = a.err.Error()
	}
	return record
}

// Score scores the nodes that fit, as Score of Engine does. It overwrites the record of Filter. rows are those of the nodes, or nil,
// as in a [Request].
func (a *Attempt) Score(ctx context.Context, nodes []*snapshot.Node, rows []int32, result *Result) error {
	req := Request{Pod: a.ev.pod, View: a.ev.view, Nodes: nodes, Rows: rows}
	a.rejected = nil
	return a.engine.decide(ctx, req, a.ev, result, func(ev *evaluation) error {
		result.Record.Fit, result.Record.Returned = len(nodes), len(nodes)
		return ev.score(ctx, a.engine.withNominated(req, &result.scratch), result)
	})
}
