package engine

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// MaxWeight is the largest weight of a policy.
const MaxWeight = 100

// maxPolicies keeps totals far from the limits of an int32.
const maxPolicies = 1000

// NodeUnknown is the reason for nodes that the request names and the view does not have, usually
// because they were created a moment ago. It is resolvable: the next attempt may find them.
var NodeUnknown = &policy.Reason{Code: "NodeUnknown", Text: "node is not known to Outboard yet"}

// UnknownNodeError is NodeUnknown as the error of a call about one node.
func UnknownNodeError(name string) error {
	return fmt.Errorf("node %q is not known to Outboard yet", name)
}

// PodTooLarge is the reason for every node if the pod, which is on no node yet, takes more than snapshot.MaxPod bytes. No policy is asked.
var PodTooLarge = &policy.Reason{Code: "PodTooLarge", Text: "the pod takes more than 64 KiB of memory, the limit for one pod", Unit: "bytes"}

// WeightedPolicy is one policy of a profile.
type WeightedPolicy struct {
	// Name identifies the policy in records, errors and metrics. It is unique in
	// its Engine.
	Name   string
	Policy policy.Policy
	// Weight multiplies the policy's scores, 0..MaxWeight. With 0 the policy only filters, and the
	// engine does not compute its scores.
	Weight        int64
	FailurePolicy policy.FailurePolicy
}

// Options configure an Engine.
type Options struct {
	Policies []WeightedPolicy
	// Shortlist limits the nodes that Filter keeps to the best ones, at most this many; 0 keeps all
	// that fit.
	Shortlist int
	// Clock measures the time of policies for Record.Policies; nil measures nothing. Decisions do
	// not depend on it.
	Clock func() time.Time
}

// Engine runs the policies of one profile. It is safe for concurrent use.
type Engine struct {
	members   []WeightedPolicy
	shortlist int
	clock     func() time.Time
	maxTotal  int64
	claimants *snapshot.Fact[[]types.UID] // nil: no policy allocates anything
	// readsDevices is whether a policy reads what Dynamic Resource Allocation allocates.
	readsDevices bool
	counting     []WeightedPolicy // those that count pods on nodes
	caches       nodeCaches
	trail        trail
	zones        zones
	holders      holders                     // empty without claimants
	nominated    atomic.Pointer[nominations] // of the latest View that has any
}

// New returns an Engine, or an error if the options are invalid.
func New(o Options) (*Engine, error) {
	if o.Shortlist < 0 {
		return nil, fmt.Errorf("shortlist is %d: must not be negative", o.Shortlist)
	}
	if len(o.Policies) > maxPolicies {
		return nil, fmt.Errorf("%d policies: at most %d are possible", len(o.Policies), maxPolicies)
	}
	e := &Engine{members: slices.Clone(o.Policies), shortlist: o.Shortlist, clock: o.Clock}
	names := map[string]bool{}
	for _, m := range o.Policies {
		switch {
		case m.Name == "" || m.Policy == nil:
			return nil, fmt.Errorf("policy %q: must have a name and a policy", m.Name)
		case names[m.Name]:
			return nil, fmt.Errorf("policy %q: name is used twice", m.Name)
		case m.Weight < 0 || m.Weight > MaxWeight:
			return nil, fmt.Errorf("policy %q: weight is %d: must be between 0 and %d", m.Name, m.Weight, MaxWeight)
		}
		names[m.Name] = true
		if reader, ok := m.Policy.(policy.InputReader); ok {
			in := reader.Inputs()
			e.readsDevices = e.readsDevices || in.Devices
			if in.CountsPods {
				e.counting = append(e.counting, m)
			}
		}
	}
	e.maxTotal = maxTotal(e.members)
	if e.Reserves() {
		e.claimants = snapshot.NewFact(claimants)
	}
	return e, nil
}

// ReadsDevices reports whether a policy reads what Dynamic Resource Allocation allocates: see [policy.Inputs].
func (e *Engine) ReadsDevices() bool { return e.readsDevices }

// CountsPods reports whether a policy counts pods on nodes: see [policy.Inputs].
func (e *Engine) CountsPods() bool { return len(e.counting) > 0 }

// CountsPod reports whether such a policy applies to the pod.
func (e *Engine) CountsPod(ctx context.Context, pod *corev1.Pod, view *snapshot.View) bool {
	return slices.ContainsFunc(e.counting, func(m WeightedPolicy) (applies bool) {
		_ = guard(m.Name, func() error { // an evaluation reports the error
			cycle, err := m.Policy.Prepare(ctx, pod, view)
			applies = err == nil && cycle != nil
			return nil
		})
		return applies
	})
}

// MaxTotal is the largest total that a node can have for any pod: 100 × the sum of the weights, and
// 0 if no policy has a weight. The largest total for one pod may be less: see Record.MaxTotal in
// [Result].
func (e *Engine) MaxTotal() int64 { return e.maxTotal }

func maxTotal(members []WeightedPolicy) int64 {
	var total int64
	for i := range members {
		total += members[i].Weight * policy.MaxScore
	}
	return total
}

// Request is the input of one evaluation: a pod, a view, and nodes.
type Request struct {
	// Pod is not nil and is trimmed (snapshot.TrimPod). The engine does not change it.
	Pod *corev1.Pod
	// View is not nil. Without a cluster it is empty. The pods nominated to a node count there if they are at least as important as Pod,
	// as in kube-scheduler's own filters: a node fits if it fits both with and without them.
	View *snapshot.View
	// Nodes are the requested nodes, each once. They are nodes of the View, nodes that exist only
	// in the request, or nil for unknown names.
	Nodes []*snapshot.Node
	// Rows are the rows of Nodes, in the same order, and -1 for nodes that are not in the View. If it is nil, the
	// engine reads them from the nodes, which takes longer.
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

// PolicyError is the error or the panic of one policy.
type PolicyError struct {
	Policy string
	Err    error
	// Stack is the stack of a panic, for logs; nil otherwise.
	Stack []byte
}

func (e *PolicyError) Error() string { return fmt.Sprintf("policy %s: %v", e.Policy, e.Err) }

// Unwrap returns the policy's own error.
func (e *PolicyError) Unwrap() error { return e.Err }

// Filter finds the nodes on which the pod fits and, with a shortlist, the best of them. The error
// is a *PolicyError, or the cause of the context's end. result.Record is always set.
func (e *Engine) Filter(ctx context.Context, req Request, result *Result) error {
	return e.run(ctx, req, result, func(ev *evaluation) error {
		nodes := e.withNominated(req, &result.scratch)
		if err := ev.filter(ctx, nodes, req.Nodes, result); err != nil {
			return err
		}
		result.Record.Fit = len(result.Kept)
		if e.shortlist > 0 && len(result.Kept) > e.shortlist {
			if err := ev.shortlist(ctx, nodes, result, e.shortlist); err != nil {
				return err
			}
		}
		result.Record.Returned = len(result.Kept)
		return nil
	})
}

// FitsAny reports whether the pod fits on at least one of the nodes. It evaluates them in order until one fits. It
// writes no record, and neither reads nor changes the caches, so that checking many pending pods does not slow down the
// pods that are being placed. The error is as for Filter.
func (e *Engine) FitsAny(ctx context.Context, req Request) (fits bool, err error) {
	ev := e.newEvaluation(req.Pod, req.View)
	nominations := e.nominations(req.View)
	err = ev.run(ctx, func() {}, func(ev *evaluation) error {
		for i, n := range req.Nodes {
			if i%checkInterval == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if fits = n != nil && ev.fitsBeside(nominations, n, false); fits {
				return nil
			}
		}
		return nil
	})
	return fits && err == nil, err
}

// Score computes the totals of the nodes. It does not filter: as in kube-scheduler, the nodes of
// the request have passed the filters. An unknown node has total 0, and does not take part in
// NormalizeScore. The error is as for Filter.
func (e *Engine) Score(ctx context.Context, req Request, result *Result) error {
	return e.run(ctx, req, result, func(ev *evaluation) error {
		result.Record.Fit, result.Record.Returned = len(req.Nodes), len(req.Nodes)
		return ev.score(ctx, e.withNominated(req, &result.scratch), result)
	})
}

// run prepares the policies and calls decide. It repeats this when a policy fails that can be ignored.
func (e *Engine) run(ctx context.Context, req Request, result *Result, decide func(*evaluation) error) error {
	return e.decide(ctx, req, e.newEvaluation(req.Pod, req.View), result, decide)
}

// decide is run with an evaluation, whose policies may be prepared already.
func (e *Engine) decide(ctx context.Context, req Request, ev *evaluation, result *Result, decide func(*evaluation) error) error {
	result.reset(e.newRecord(req))
	err := ev.run(ctx, func() { result.reset(e.newRecord(req)) }, func(ev *evaluation) error {
		e.caches.takeForRequest(ev, &req, &result.scratch)
		defer e.caches.put(ev)
		return decide(ev)
	})
	result.Record.Policies, result.Record.MaxTotal = ev.policies(), ev.maxTotal
	if err != nil {
		result.reset(result.Record)
		result.Record.Error = err.Error()
		return err
	}
	result.Record.Rejections = ev.rejections(req.Nodes)
	return nil
}

func (r *Result) reset(record *decision.Record) {
	r.Kept, r.Rejected, r.Totals, r.Record = r.Kept[:0], r.Rejected[:0], r.Totals[:0], record
}
