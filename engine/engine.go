package engine

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// MaxWeight is the largest weight of a policy.
const MaxWeight = 100

// maxPolicies keeps totals far from the limits of an int32.
const maxPolicies = 1000

// NodeUnknown is the reason of nodes that are in the request by name only and
// not in the view, usually because they were created a moment ago. It is
// resolvable: the next attempt may find them.
var NodeUnknown = &policy.Reason{Code: "NodeUnknown", Text: "node is not known to Outboard yet"}

// WeightedPolicy is one policy of a profile.
type WeightedPolicy struct {
	// Name identifies the policy in records, errors and metrics. It is unique in
	// its Engine.
	Name   string
	Policy policy.Policy
	// Weight multiplies the policy's scores, 0..MaxWeight. With 0 the policy
	// filters only, and its scores are not computed.
	Weight        int64
	FailurePolicy policy.FailurePolicy
}

// Options are the parts of an Engine.
type Options struct {
	Policies []WeightedPolicy
	// Shortlist makes Filter keep only the best nodes, at most this many; 0
	// keeps all that fit.
	Shortlist int
	// Clock is what times the policies by, for Record.Policies; nil takes no
	// times. It decides nothing.
	Clock func() time.Time
}

// Engine runs the policies of one profile. It may be used by any number of
// goroutines.
type Engine struct {
	members   []WeightedPolicy
	shortlist int
	clock     func() time.Time
	maxTotal  int64
	claimants *snapshot.Fact[[]types.UID] // nil: no policy hands anything out
	prepared  evaluations
	caches    nodeCaches
	nominated atomic.Pointer[nominations] // of the latest View with any
}

// New returns an Engine, or an error when the options do not go together.
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
	}
	e.maxTotal = maxTotal(e.members)
	if e.Reserves() {
		e.claimants = snapshot.NewFact(claimants)
	}
	return e, nil
}

// MaxTotal is the largest total a node can have for any pod: 100 × the sum of the weights.
// It is 0 when no policy has a weight. For one pod it may be less: see Record.MaxTotal in
// [Result].
func (e *Engine) MaxTotal() int64 { return e.maxTotal }

func maxTotal(members []WeightedPolicy) int64 {
	var total int64
	for i := range members {
		total += members[i].Weight * policy.MaxScore
	}
	return total
}

// Request is one question: about this pod, over this view, for these nodes.
type Request struct {
	// Pod is not nil, trimmed (snapshot.TrimPod), and read-only.
	Pod *corev1.Pod
	// View is not nil. Without a cluster it is empty.
	View *snapshot.View
	// Nodes are the nodes asked, each once. They are nodes of the View, nodes
	// that exist only in the request, or nil for unknown names.
	Nodes []*snapshot.Node
	// Rows are the rows of Nodes, in the same order, and -1 for nodes that are not in the View. Nil: the nodes are asked for them,
	// which takes longer.
	Rows []int32
	// Nominations are those that the View does not tell (yet). Nil: none.
	//
	// The pods nominated to a node, by the View or by this, count there if they are at least as important as Pod, as in
	// kube-scheduler's own filters: a node fits if it does both with them and without.
	Nominations *Nominations
}

// Result is the answer to a Request. Its slices are used again by the next call
// it is passed to; its Record is not. The zero Result is ready to use. After an
// error it holds the Record alone.
type Result struct {
	// Kept are the nodes to answer with, as ascending indices into
	// Request.Nodes.
	Kept []int32
	// Rejected are the nodes that do not fit, in the order asked.
	Rejected []Rejected
	// Totals are the totals of the nodes in the order asked, each in
	// 0..Record.MaxTotal; only Score sets them.
	Totals []int64
	// Record says what was decided and why. Its Time, Duration, Verb and Profile
	// are the caller's to fill in.
	Record *decision.Record
	// Scores are those of all nodes that were scored, if there were any, as Record.Top says;
	// else it means nothing. It is written over by the next request, unless the caller has
	// taken it and left another or nil.
	Scores *decision.Scores

	scratch scratch
}

// Rejected is one node that does not fit.
type Rejected struct {
	Index        int32 // into Request.Nodes
	Reason       *policy.Reason
	Unresolvable bool
}

// PolicyError is the error, or the panic, of one policy.
type PolicyError struct {
	Policy string
	Err    error
	// Stack is the stack of a panic, for the log; nil otherwise.
	Stack []byte
}

func (e *PolicyError) Error() string { return fmt.Sprintf("policy %s: %v", e.Policy, e.Err) }

// Unwrap returns the policy's own error.
func (e *PolicyError) Unwrap() error { return e.Err }

// Filter finds the nodes on which the pod fits and, with a shortlist, the best
// of them. The error is a *PolicyError, or the cause of the context's end;
// result.Record is set in any case.
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

// FitsAny says whether the pod fits on at least one of the nodes; it asks about them in order until one fits. It leaves no
// record, and neither uses nor changes what is cached, so that asking about many pods that wait does not cost
// those that are being placed anything. The error is as for Filter.
func (e *Engine) FitsAny(ctx context.Context, req Request) (fits bool, err error) {
	ev := &evaluation{key: evaluationKey{view: req.View}}
	ev.begin(e, req, false)
	nominations := e.nominations(req.View, req.Nominations)
	decide := func(ev *evaluation) error {
		for i, n := range req.Nodes {
			if i%checkInterval == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			counting := nominations.counting(n, req.Pod, false)
			if fits = n != nil && ev.passes(counting) && (counting == n || ev.passes(n)); fits {
				return nil
			}
		}
		return nil
	}
	err = ev.attempt(ctx, decide)
	for ev.again {
		ev.forget()
		err = ev.attempt(ctx, decide)
	}
	return fits && err == nil, err
}

// Score computes the totals of the nodes. It does not filter: as in
// kube-scheduler, the nodes asked are those that passed. An unknown node has
// total 0, and does not take part in NormalizeScore. The error is as for Filter.
func (e *Engine) Score(ctx context.Context, req Request, result *Result) error {
	return e.run(ctx, req, result, func(ev *evaluation) error {
		result.Record.Fit, result.Record.Returned = len(req.Nodes), len(req.Nodes)
		return ev.score(ctx, e.withNominated(req, &result.scratch), result)
	})
}

// run prepares the policies, or finds them prepared, and decides, again if a
// policy that may be left out failed.
func (e *Engine) run(ctx context.Context, req Request, result *Result, decide func(*evaluation) error) error {
	ev, prepared := e.prepared.take(req)
	ev.begin(e, req, prepared)
	cached := func(ev *evaluation) error {
		e.caches.take(ev, &req)
		defer e.caches.put(ev)
		return decide(ev)
	}
	result.reset(e.newRecord(req, prepared))
	err := ev.attempt(ctx, cached)
	for ev.again {
		ev.forget()
		result.reset(e.newRecord(req, false))
		err = ev.attempt(ctx, cached)
	}
	result.Record.Policies, result.Record.MaxTotal = ev.policies(), ev.maxTotal
	if err != nil {
		result.reset(result.Record)
		result.Record.Error = err.Error()
		return err
	}
	result.Record.Rejections = ev.rejections(req.Nodes)
	e.prepared.put(ev)
	return nil
}

func (r *Result) reset(record *decision.Record) {
	r.Kept, r.Rejected, r.Totals, r.Record = r.Kept[:0], r.Rejected[:0], r.Totals[:0], record
}
