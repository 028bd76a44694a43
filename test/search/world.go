package search

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/cluster/assumption"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// World is a state of everything. It is a value: a move changes a copy.
type World struct {
	scope    *Scope
	pods     []*corev1.Pod    // in the API server; nil: deleted
	ledgers  []*ledger.Object // in the API server; nil: none
	versions int              // of pods and ledgers
	late     []*request       // which nobody waits for, and that may still arrive
	replicas []replica
	tried    []int // how often a kube-scheduler has tried each pod
	rejected []int // the replica that has rejected each pod and will have it retried, plus 1; 0: kube-scheduler retries it
	tokens   int   // how many claims were tried
	// What the scope bounds, so far.
	faults, crashes, deletions, expiries int
}

// replica is the state of one replica.
type replica struct {
	pods         []*corev1.Pod // as the watch has shown them; nil: deleted
	podEvents    []event[*corev1.Pod]
	ledgers      []*ledger.Object
	ledgerEvents []event[*ledger.Object]
	assumed      []assumption.State
	counted      []counted // what views show
	writers      []writer  // one for each ledger
	calls        []call
	sweep        *sweep // at most one at a time
}

// event is a change that a watch will show. Each resource has one watch, which shows changes in their order.
type event[T any] struct {
	index int // of the pod or ledger
	now   T
}

// counted is a pod as views have it; on no node if pod is nil.
type counted struct {
	pod  *corev1.Pod
	node string
}

// writer is what [ledger.Keeper] knows of one ledger.
type writer struct {
	queue   ledger.Queue
	writing bool
	batch   []*ledger.Submission
	write   ledger.Writing
	request *request
	claims  []ledger.Examination // while the write examines claims: those so far
}

// call is a bind call. It waits for a response or for the outcome of an operation.
type call struct {
	pod      int
	node     int
	target   binder.Target
	begun    bool // the protocol has begun: the pod is assumed
	protocol binder.Protocol
	task     binder.Task
	number   int   // of the call of Bind
	failure  error // of the Binding, while the pod is read
	request  *request
	waits    *ledger.Submission
}

// sweep is the examination of one claim by a sweep.
type sweep struct {
	ledger  int
	claim   ledger.Examination
	request *request
	waits   *ledger.Submission
}

// NewWorld returns the World in which nothing has happened.
func NewWorld(scope Scope) (*World, error) {
	if err := scope.prepare(); err != nil {
		return nil, err
	}
	w := &World{scope: &scope, ledgers: make([]*ledger.Object, scope.Nodes), tried: make([]int, scope.Pods), rejected: make([]int, scope.Pods)}
	for p := range scope.Pods {
		pod := scope.newPod(p)
		pod.ResourceVersion = w.version()
		w.pods = append(w.pods, pod)
	}
	for range scope.Replicas {
		w.replicas = append(w.replicas, w.started())
	}
	return w, nil
}

// started returns a replica that has just read everything.
func (w *World) started() replica {
	r := replica{
		pods: slices.Clone(w.pods), ledgers: slices.Clone(w.ledgers),
		assumed: make([]assumption.State, len(w.pods)), counted: make([]counted, len(w.pods)),
		writers: make([]writer, len(w.ledgers)),
	}
	for p, pod := range r.pods {
		r.counted[p] = asWatched(pod)
	}
	for l := range r.writers {
		r.writers[l].queue.Key = w.scope.keys[l]
	}
	return r
}

func asWatched(pod *corev1.Pod) counted {
	if !assumption.OnNode(pod) {
		return counted{}
	}
	return counted{pod, pod.Spec.NodeName}
}

// clone returns a copy that shares only what is immutable.
func (w *World) clone() *World {
	c := *w
	c.pods, c.ledgers, c.late = slices.Clone(w.pods), slices.Clone(w.ledgers), slices.Clone(w.late)
	c.tried, c.rejected = slices.Clone(w.tried), slices.Clone(w.rejected)
	c.replicas = slices.Clone(w.replicas)
	for i := range c.replicas {
		r := &c.replicas[i]
		r.pods, r.ledgers = slices.Clone(r.pods), slices.Clone(r.ledgers)
		r.podEvents, r.ledgerEvents = slices.Clone(r.podEvents), slices.Clone(r.ledgerEvents)
		r.assumed, r.counted, r.calls = slices.Clone(r.assumed), slices.Clone(r.counted), slices.Clone(r.calls)
		r.writers = slices.Clone(r.writers)
		for l := range r.writers {
			r.writers[l].queue = r.writers[l].queue.Clone()
		}
		if r.sweep != nil {
			s := *r.sweep
			r.sweep = &s
		}
	}
	return &c
}

// apply has the views of the replica show the effect of a step of the pod's assumption, as the cluster does.
func (w *World) apply(r *replica, p int, next assumption.State, e assumption.Effect) {
	r.assumed[p] = next
	switch e {
	case assumption.AsAssumed:
		r.counted[p] = counted{next.Pod, next.Node}
	case assumption.AsWatched:
		r.counted[p] = asWatched(r.pods[p])
	}
}

// forget ends a call of Assume or Bind.
func (w *World) forget(r *replica, p int) {
	next, e := r.assumed[p].End()
	if w.scope.Mutation == ForgetWithoutView && e == assumption.AsWatched {
		e = assumption.Unchanged
	}
	w.apply(r, p, next, e)
}

// requeue has kube-scheduler retry the rejected pods that fit in the replica's view.
func (w *World) requeue(i int) {
	for p, by := range w.rejected {
		if by != i+1 {
			continue
		}
		if pod := w.replicas[i].pods[p]; pod == nil || pod.Spec.NodeName != "" || len(w.fitting(&w.replicas[i], p)) > 0 {
			w.rejected[p] = 0
		}
	}
}

// fitting returns the nodes on which the pod fits, in the view of the replica.
func (w *World) fitting(r *replica, p int) []int {
	view := w.view(r, p)
	var nodes []int
	for n := range w.scope.nodes {
		if w.scope.fits(view, r.pods[p], n) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// begin begins a bind call, as the extender does. The pod is waiting.
func (w *World) begin(r *replica, p, n int) {
	c := call{pod: p, node: n}
	name := w.scope.nodes[n].Name
	if former := r.assumed[p]; !former.Bound && former.Node != "" && former.Node != name {
		c.request = &request{verb: touchPod, object: p} // Binder.Resolve
		r.calls = append(r.calls, c)
		return
	}
	w.admit(r, &c, r.pods[p])
}

// admit assumes the pod, and begins the protocol.
func (w *World) admit(r *replica, c *call, pod *corev1.Pod) {
	name := w.scope.nodes[c.node].Name
	if done, err := binder.AlreadyBound("default", w.scope.pod(c.pod), types.UID(w.scope.pod(c.pod)), name, pod); done || err != nil {
		return
	}
	view := w.view(r, c.pod)
	if !w.scope.fits(view, pod, c.node) {
		return
	}
	c.target = binder.Target{View: view, Node: w.scope.engine.CountNominated(view, pod, view.Node(name))}
	planned, _ := w.scope.engine.Planned(view, pod, c.target.Node, epoch)
	next, e := r.assumed[c.pod].Assume(planned, name, r.pods[c.pod])
	w.apply(r, c.pod, next, e)
	c.begun = true
	c.protocol, c.task = binder.Begin(w.scope.engine, c.target, pod)
	r.calls = append(r.calls, *c)
	w.perform(r, len(r.calls)-1)
}

// epoch is the time by all clocks.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// step continues the protocol of a call with what came of its task.
func (w *World) step(r *replica, i int, result binder.Result) {
	c := &r.calls[i]
	c.protocol, c.task = c.protocol.Step(result)
	w.perform(r, i)
}

// perform begins to perform the task of a call.
func (w *World) perform(r *replica, i int) {
	c := &r.calls[i]
	c.request, c.waits, c.failure = nil, nil, nil
	switch c.task.Action {
	case binder.Done:
		p := c.pod
		r.calls = slices.Delete(r.calls, i, i+1)
		w.forget(r, p)
	case binder.Claim:
		w.tokens++
		token := fmt.Sprintf("%d.%d", w.tokens, viewNumber(c.target.View))
		_, err := c.task.Claim.Make(context.Background(), ledgersFunc(func(key snapshot.LedgerKey, pod *corev1.Pod, node string, choose engine.Choose) (snapshot.LedgerPod, error) {
			c.waits = r.submit(w.scope.node(key.Node), ledger.ClaimFor(pod, node, token, choose))
			return snapshot.LedgerPod{}, errLost
		}))
		if c.waits == nil {
			panic(err)
		}
	case binder.Release, binder.Revoke:
		c.waits = r.submit(w.scope.node(c.task.Held.Key.Node), ledger.ReleaseOf(c.task.Held.Pod, c.task.Action == binder.Revoke))
	case binder.Bind:
		r.assumed[c.pod] = r.assumed[c.pod].Begin()
		c.number = r.assumed[c.pod].Begun
		if w.scope.Mutation == BindingWithoutVersion {
			c.task.Binding.ResourceVersion = ""
		}
		c.request = &request{verb: bindPod, object: c.pod, binding: c.task.Binding}
	case binder.Read:
		c.request = &request{verb: getPod, object: c.pod}
	case binder.Touch:
		c.request = &request{verb: touchPod, object: c.pod}
	case binder.Await:
		panic("search: claims of Devices wait for no pod")
	}
}

// ledgersFunc calls a function for Claim.
type ledgersFunc func(snapshot.LedgerKey, *corev1.Pod, string, engine.Choose) (snapshot.LedgerPod, error)

func (f ledgersFunc) Claim(_ context.Context, key snapshot.LedgerKey, pod *corev1.Pod, node string, choose engine.Choose) (snapshot.LedgerPod, error) {
	return f(key, pod, node, choose)
}
func (ledgersFunc) Release(context.Context, snapshot.LedgerKey, snapshot.LedgerPod) error { return nil }
func (ledgersFunc) Revoke(context.Context, snapshot.LedgerKey, snapshot.LedgerPod) error  { return nil }

// finish continues a call whose operation has an outcome, as Keeper.submit does.
func (w *World) finish(r *replica, i int, o ledger.Outcome) {
	c := &r.calls[i]
	if o.Failure != nil {
		_ = r.writers[c.node].queue.Withdraw(c.waits)
	}
	if c.task.Action != binder.Claim {
		w.step(r, i, binder.Result{Err: o.Failure})
		return
	}
	held, err := c.task.Claim.Make(context.Background(), ledgersFunc(func(snapshot.LedgerKey, *corev1.Pod, string, engine.Choose) (snapshot.LedgerPod, error) {
		if o.Failure != nil {
			return snapshot.LedgerPod{}, o.Failure
		}
		return o.Held, o.Err
	}))
	w.step(r, i, binder.Result{Held: held, Err: err})
}

// respond passes the response to the request of a call.
func (w *World) respond(r *replica, i int, done *request) {
	c := &r.calls[i]
	if !c.begun { // Binder.Resolve
		resolved := *c
		resolved.request = nil
		r.calls = slices.Delete(r.calls, i, i+1)
		if done.err == nil {
			w.admit(r, &resolved, done.pod)
		}
		return
	}
	switch done.verb {
	case bindPod:
		switch {
		case done.err == nil && w.scope.Mutation == AnnotationsAfterBinding:
			c.request = &request{verb: annotatePod, object: c.pod, binding: c.task.Binding}
		case done.err == nil:
			w.bound(r, i, boundAs(r.pods[c.pod], c.task.Binding), nil)
		case apierrors.IsNotFound(done.err):
			w.bound(r, i, nil, done.err)
		default:
			c.failure, c.request = done.err, &request{verb: getPod, object: c.pod}
		}
	case annotatePod:
		w.bound(r, i, boundAs(r.pods[c.pod], c.task.Binding), nil)
	case getPod, touchPod:
		if c.failure == nil {
			w.step(r, i, binder.Result{Pod: done.pod, Err: done.err})
			return
		}
		pod, err := classify(c.task.Binding, c.failure, done.pod, done.err)
		w.bound(r, i, pod, err)
	}
}

// bound ends a call of Bind. pod is as it was bound, or nil.
func (w *World) bound(r *replica, i int, pod *corev1.Pod, err error) {
	c := &r.calls[i]
	next, e := r.assumed[c.pod].Respond(c.number, pod, r.pods[c.pod], epoch)
	w.apply(r, c.pod, next, e)
	w.forget(r, c.pod)
	w.step(r, i, binder.Result{Err: err})
}

// boundAs returns the pod, as the watch has shown it, with the Binding.
func boundAs(pod *corev1.Pod, b binder.Binding) *corev1.Pod {
	if pod == nil {
		return nil // it is gone already
	}
	bound := *pod
	bound.ResourceVersion, bound.Spec.NodeName, bound.Annotations = "", b.Node, b.Annotations
	return &bound
}

// classify returns what came of a Binding, as the cluster does: the pod if it is bound to the node.
func classify(b binder.Binding, failure error, pod *corev1.Pod, lookup error) (*corev1.Pod, error) {
	switch {
	case lookup != nil:
		return nil, binder.ErrOutcomeUnknown
	case pod == nil:
		return nil, failure
	case pod.Spec.NodeName == b.Node:
		return pod, nil
	case pod.Spec.NodeName != "":
		return nil, failure
	case apierrors.IsConflict(failure) && b.ResourceVersion != "" && pod.ResourceVersion != b.ResourceVersion:
		return nil, binder.ErrPodChanged
	case apierrors.IsConflict(failure):
		return nil, failure
	}
	return nil, binder.ErrOutcomeUnknown
}

// submit queues an operation.
func (r *replica) submit(l int, o ledger.Operation) *ledger.Submission {
	s := &ledger.Submission{Operation: o}
	r.writers[l].queue.Add(s)
	return s
}

// next passes a response to the write of a ledger, and performs what needs no request.
func (w *World) next(r *replica, l int, response ledger.Response) {
	q := &r.writers[l]
	q.request = nil
	for {
		response.Now, response.Cached = epoch, r.ledgers[l]
		q.write = q.write.Next(response)
		response = ledger.Response{}
		switch q.write.Request.Kind {
		case ledger.ReadCache, ledger.Pause:
			continue
		case ledger.ReadLedger:
			q.request = &request{verb: getLedger, object: l}
		case ledger.PutLedger:
			q.request = &request{verb: putLedger, object: l, put: q.write.Request.Object}
		case ledger.ExamineClaims:
			q.claims = nil
			w.examineNext(r, l)
		case ledger.Written:
			batch, outcomes := q.batch, q.write.Outcomes
			q.queue.Wrote(q.write)
			q.writing, q.batch, q.write = false, nil, ledger.Writing{}
			for i, s := range batch {
				w.deliver(r, s, outcomes[i])
			}
		}
		return
	}
}

// deliver passes the outcome of an operation to who waits for it.
func (w *World) deliver(r *replica, s *ledger.Submission, o ledger.Outcome) {
	for i := range r.calls {
		if r.calls[i].waits == s {
			w.finish(r, i, o)
			return
		}
	}
	if r.sweep != nil && r.sweep.waits == s {
		r.sweep = nil
	}
}

// examineNext examines the next claim for a write, and continues the write after the last one.
func (w *World) examineNext(r *replica, l int) {
	q := &r.writers[l]
	for len(q.claims) < len(q.write.Request.Claims) {
		e := q.write.Request.Claims[len(q.claims)]
		if e, q.request = w.examine(r, e); q.request != nil {
			q.claims = append(slices.Clip(q.claims), e)
			return
		}
		q.claims = append(slices.Clip(q.claims), e)
	}
	claims := q.claims
	q.claims = nil
	w.next(r, l, ledger.Response{Claims: claims})
}

// examine continues an examination until it needs the API server, or has ended.
func (w *World) examine(r *replica, e ledger.Examination) (ledger.Examination, *request) {
	p := w.scope.podNamed(e.Claim.Name)
	for e.Err == nil {
		switch e.Request {
		case ledger.ReadCachedPod:
			e = e.Next(r.pods[p], nil)
		case ledger.ReadPod:
			return e, &request{verb: getPod, object: p}
		case ledger.TouchPod:
			return e, &request{verb: touchPod, object: p}
		default:
			return e, nil
		}
	}
	return e, nil
}

// written passes the response to the request of the write of a ledger.
func (w *World) written(r *replica, l int, done *request, ended bool) {
	q := &r.writers[l]
	if done.verb == getLedger || done.verb == putLedger {
		w.next(r, l, ledger.Response{Object: done.ledger, Err: done.err, Ended: ended})
		return
	}
	last := len(q.claims) - 1
	q.claims = slices.Clone(q.claims)
	var e ledger.Examination
	if e, q.request = w.examine(r, q.claims[last].Next(done.pod, done.err)); q.request != nil {
		q.claims[last] = e
		return
	}
	q.claims[last] = e
	w.examineNext(r, l)
}

// swept passes the response to the request of a sweep.
func (w *World) swept(r *replica, done *request) {
	s := r.sweep
	s.claim, s.request = w.examine(r, s.claim.Next(done.pod, done.err))
	switch {
	case s.request != nil:
	case s.claim.Err == nil && s.claim.Request == ledger.ReleaseClaim:
		s.waits = r.submit(s.ledger, s.claim.Release())
	default:
		r.sweep = nil
	}
}

// view returns the view of the replica for the evaluation of the pod.
func (w *World) view(r *replica, p int) *snapshot.View {
	counts := slices.Clone(r.counted)
	if a := r.assumed[p]; !a.Bound && a.Node != "" {
		counts[p] = counted{}
	}
	return viewOf(w.scope, counts, r)
}
