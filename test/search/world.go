package search

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/cluster/assumption"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// World is a state of everything. It is a value: a move changes a copy.
type World struct {
	scope    *Scope
	pods     []*corev1.Pod    // in the API server; nil: deleted, or not created yet
	ledgers  []*ledger.Object // in the API server; nil: none
	nodes    []*corev1.Node   // in the API server
	was      []*corev1.Pod    // as each pod was bound, also after it is deleted; nil: not bound so far
	versions int              // of pods and ledgers
	late     []*request       // which nobody waits for, and that may still arrive
	replicas []replica
	tried    []int // how often a kube-scheduler has tried each pod
	rejected []int // the replica that has rejected each pod and will have it retried, plus 1; 0: kube-scheduler retries it
	tokens   int   // how many allocations were tried
	// preemptions are what kube-schedulers do to make room for each pod.
	preemptions []preemption
	// What the scope bounds, so far.
	faults, duplicates, crashes, created, changes, deletions, endings, expiries, replacements, confirms, preempted, unaware int
	// broken is a promise that the last move has broken; nil: none.
	broken error
}

// NewWorld returns the World in which nothing has happened.
func NewWorld(scope Scope) (*World, error) {
	if err := scope.prepare(); err != nil {
		return nil, err
	}
	w := &World{
		scope: &scope, ledgers: make([]*ledger.Object, len(scope.keys)), nodes: scope.nodes, was: make([]*corev1.Pod, scope.Pods),
		tried: make([]int, scope.Pods), rejected: make([]int, scope.Pods), preemptions: make([]preemption, scope.Pods),
	}
	w.pods = make([]*corev1.Pod, scope.Pods)
	for p := range scope.Pods - scope.Creations {
		w.pods[p] = scope.newPod(p)
		w.pods[p].ResourceVersion = w.version()
	}
	for range scope.Replicas {
		w.replicas = append(w.replicas, w.started())
	}
	w.bindVictims()
	w.nominateFirst()
	return w, nil
}

// clone returns a copy that shares only what is immutable.
func (w *World) clone() *World {
	c := *w
	c.pods, c.ledgers, c.late = slices.Clone(w.pods), slices.Clone(w.ledgers), slices.Clone(w.late)
	c.tried, c.rejected, c.preemptions = slices.Clone(w.tried), slices.Clone(w.rejected), slices.Clone(w.preemptions)
	c.nodes, c.was, c.replicas = slices.Clone(w.nodes), slices.Clone(w.was), slices.Clone(w.replicas)
	for i := range c.replicas {
		c.replicas[i] = c.replicas[i].clone()
	}
	return &c
}

// forget ends a call of Assume.
func (w *World) forget(r *replica, p int) {
	uid := w.scope.uid(p)
	if r.change(func(c *offline) { c.Forget(uid) }); !r.bound[p] && !r.has(p) {
		r.decided[p] = ""
	}
}

// begin begins a bind call, as the extender and the plugin do. The pod is waiting.
func (w *World) begin(r *replica, p, n int) {
	c := call{pod: p, node: n}
	if w.scope.Plugin {
		c.permit = true
		w.assume(r, &c, w.queued(r, p))
		r.calls = append(r.calls, c)
		return
	}
	pod := r.cluster.LatestPod(w.scope.uid(p))
	if pod == nil {
		c.request = w.ask(r, getPod, p)
		r.calls = append(r.calls, c)
		return
	}
	w.resolve(r, &c, pod)
}

// resolve continues a bind call with the pod, as the extender does.
func (w *World) resolve(r *replica, c *call, pod *corev1.Pod) {
	uid, name := w.scope.uid(c.pod), w.scope.nodes[c.node].Name
	if done, err := binder.AlreadyBound(namespace, w.scope.name(c.pod), uid, name, pod); done || err != nil {
		return
	}
	if former := r.cluster.Assumed(uid); former != "" && former != name {
		c.request = w.ask(r, touchPod, c.pod) // Binder.Resolve
		r.calls = append(r.calls, *c)
		return
	}
	w.admit(r, c, pod)
}

// assume assumes the pod on the node of the call, if it fits there.
func (w *World) assume(r *replica, c *call, pod *corev1.Pod) bool {
	view := r.look(w.scope).others[c.pod]
	if !w.scope.fits(view, pod, c.node) && !w.vacant(r, c.pod, c.node) {
		return false
	}
	name := w.scope.nodes[c.node].Name
	c.target = binder.Target{View: view, Node: w.scope.engine.CountNominated(view, pod, view.Node(name))}
	planned, allocations := w.scope.engine.Planned(view, pod, c.target.Node, epoch)
	if w.scope.Plugin && !allocations {
		w.broken = fmt.Errorf("the plugin leaves pod %s, which requests a device or a seat, to a plugin that allocates nothing", w.scope.pod(c.pod))
	}
	r.change(func(c *offline) { c.Assume(planned, name) })
	if c.assumed = true; !r.bound[c.pod] {
		r.decided[c.pod] = name
	}
	return true
}

// admit assumes the pod, and begins the protocol.
func (w *World) admit(r *replica, c *call, pod *corev1.Pod) {
	if w.assume(r, c, pod) {
		r.calls = append(r.calls, *c)
		w.protocol(r, len(r.calls)-1, pod)
	}
}

// proceed begins the protocol of a pod that was reserved, as the plugin does.
func (w *World) proceed(r *replica, i int) {
	c := &r.calls[i]
	c.permit = false
	pod := w.queued(r, c.pod)
	if pod == nil {
		pod = w.scope.newPod(c.pod) // as in kube-scheduler's queue
	}
	view := r.look(w.scope).others[c.pod]
	c.target = binder.Target{View: view, Node: w.scope.engine.CountNominated(view, pod, view.Node(w.scope.nodes[c.node].Name))}
	w.protocol(r, i, pod)
}

func (w *World) protocol(r *replica, i int, pod *corev1.Pod) {
	c := &r.calls[i]
	c.protocol, c.task = binder.Begin(w.scope.engine, c.target, pod)
	w.perform(r, i)
}

// end ends a bind call. With the plugin, PostBind or Unreserve comes next.
func (w *World) end(r *replica, i int, err error) {
	p := r.calls[i].pod
	r.calls = slices.Delete(r.calls, i, i+1)
	switch {
	case w.scope.Plugin && (err == nil || w.scope.Mutation == FinishedWithoutBinding):
		uid := w.scope.uid(p)
		r.change(func(c *offline) { c.FinishBinding(uid, epoch) })
		if err == nil && r.decided[p] != "" {
			r.bound[p] = true
		}
	case err != nil && w.scope.Mutation == NotForgotten:
		if !r.has(p) && !r.bound[p] {
			r.decided[p] = ""
		}
		return
	}
	w.forget(r, p)
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
	c.request, c.waits, c.number, c.sending = nil, nil, 0, cluster.Sending{}
	switch c.task.Action {
	case binder.Done:
		w.end(r, i, c.task.Err)
	case binder.Allocation:
		w.tokens++
		token := fmt.Sprintf("%d.%d", w.tokens, viewNumber(c.target.View))
		c.ledger = w.scope.ledgerOf(c.task.Allocation.Key)
		_, err := c.task.Allocation.Make(context.Background(), ledgersFunc(func(_ snapshot.LedgerKey, pod *corev1.Pod, node string, choose engine.Choose) (snapshot.LedgerPod, error) {
			c.waits = r.submit(c.ledger, ledger.AllocationFor(pod, node, token, choose))
			return snapshot.LedgerPod{}, errLost
		}))
		if c.waits == nil {
			panic(err)
		}
	case binder.Release, binder.Revoke:
		c.ledger = w.scope.ledgerOf(c.task.Held.Key)
		c.waits = r.submit(c.ledger, ledger.ReleaseOf(c.task.Held.Pod, c.task.Action == binder.Revoke))
	case binder.Bind:
		if w.scope.Mutation == BindingWithoutVersion {
			c.task.Binding.ResourceVersion = ""
		}
		has, gets := c.target.Node.Object.Annotations[units], c.task.Binding.Annotations[annotation]
		if w.scope.Request == NamedDevice && !slices.Contains(strings.Split(has, ","), gets) {
			w.broken = fmt.Errorf("pod %s is bound with device %q, and the node of the bind call has %q", w.scope.pod(c.pod), gets, has)
		}
		c.number, c.sending = r.begin(w.scope.uid(c.pod)), cluster.Sending{Binding: c.task.Binding}
		c.request = &request{verb: bindPod, object: c.pod, binding: c.task.Binding}
	case binder.Read:
		c.request = w.ask(r, getPod, c.pod)
	case binder.Touch:
		c.request = w.ask(r, touchPod, c.pod)
	case binder.Await:
		panic("search: allocations of Devices wait for no pod")
	}
}

// ledgersFunc calls a function for Allocation.
type ledgersFunc func(snapshot.LedgerKey, *corev1.Pod, string, engine.Choose) (snapshot.LedgerPod, error)

func (f ledgersFunc) Allocate(_ context.Context, key snapshot.LedgerKey, pod *corev1.Pod, node string, choose engine.Choose) (snapshot.LedgerPod, error) {
	return f(key, pod, node, choose)
}
func (ledgersFunc) Release(context.Context, snapshot.LedgerKey, snapshot.LedgerPod) error { return nil }
func (ledgersFunc) Revoke(context.Context, snapshot.LedgerKey, snapshot.LedgerPod) error  { return nil }

// finish continues a call whose operation has an outcome, as Keeper.submit does.
func (w *World) finish(r *replica, i int, o ledger.Outcome) {
	c := &r.calls[i]
	if o.Failure != nil {
		_ = r.writers[c.ledger].queue.Withdraw(c.waits)
	}
	if c.task.Action != binder.Allocation {
		w.step(r, i, binder.Result{Err: o.Failure})
		return
	}
	held, err := c.task.Allocation.Make(context.Background(), ledgersFunc(func(snapshot.LedgerKey, *corev1.Pod, string, engine.Choose) (snapshot.LedgerPod, error) {
		if o.Failure != nil {
			return snapshot.LedgerPod{}, o.Failure
		}
		if w.scope.Mutation == UnusableAllocationUsed && o.Held.Token != "" {
			return o.Held, nil
		}
		return o.Held, o.Err
	}))
	w.step(r, i, binder.Result{Held: held, Err: err})
}

// respond passes the response to the request of a call. sent is false if the request has not left the replica.
func (w *World) respond(r *replica, i int, done *request, sent bool) {
	w.answer(r, done)
	c := &r.calls[i]
	uid := w.scope.uid(c.pod)
	if !c.assumed { // before Binder.Bind
		resolved := *c
		resolved.request = nil
		r.calls = slices.Delete(r.calls, i, i+1)
		if done.err != nil {
			return
		}
		if done.verb == getPod {
			w.resolve(r, &resolved, done.pod)
			return
		}
		if _, err := binder.AlreadyBound(namespace, w.scope.name(resolved.pod), uid, w.scope.nodes[resolved.node].Name, done.pod); err == nil {
			w.admit(r, &resolved, done.pod)
		}
		return
	}
	switch {
	case c.number == 0:
		w.step(r, i, binder.Result{Pod: done.pod, Err: done.err})
	case done.verb == bindPod && done.err == nil && w.scope.Mutation == AnnotationsAfterBinding:
		c.request = &request{verb: annotatePod, object: c.pod, binding: c.task.Binding}
	case done.verb == getPod:
		w.sent(r, i, cluster.SendResponse{Pod: done.pod, Err: done.err})
	default:
		w.sent(r, i, cluster.SendResponse{Sent: sent, Pod: r.cluster.PodByUID(uid), Err: done.err})
	}
}

// ask begins a LivePod or TouchPod, as the verb says.
func (w *World) ask(r *replica, v verb, p int) *request {
	return &request{verb: v, object: p, number: r.begin(w.scope.uid(p))}
}

// begin begins a request about the pod, and returns its number.
func (r *replica) begin(uid types.UID) int {
	return r.numbered(func(c *offline) int { return c.BeginRequest(uid) })
}

// endRequest ends the request with that number.
func (r *replica) endRequest(uid types.UID, number int, pod *corev1.Pod) {
	r.change(func(c *offline) { c.EndRequest(uid, number, pod, epoch) })
}

// answer ends it.
func (w *World) answer(r *replica, done *request) {
	if done.number == 0 {
		return
	}
	r.endRequest(w.scope.uid(done.object), done.number, done.pod)
	r.learn(done.object, done.pod)
}

// answerInVain ends each LivePod and TouchPod whose response will say nothing about the pod that the views do not have.
func (w *World) answerInVain(r *replica) {
	for _, at := range r.requests() {
		q := r.request(at.sender, at.index)
		if q.number == 0 || !assumption.OnNode(r.pods[q.object]) && !r.gone[q.object] && !(q.arrived && !assumption.OnNode(q.pod)) {
			continue
		}
		r.endRequest(w.scope.uid(q.object), q.number, nil)
		ended := *q
		ended.number = 0
		r.setRequest(at.sender, at.index, &ended)
	}
}

// learn records what the API server has said about a pod: it may be on a node.
func (r *replica) learn(p int, pod *corev1.Pod) {
	if watched := r.pods[p]; existing(pod) != nil && pod.Spec.NodeName != "" && (watched == nil || watched.Spec.NodeName == "") && !r.gone[p] {
		r.decided[p], r.bound[p] = pod.Spec.NodeName, true
	}
}

// sent continues the Bind of a call, as Cluster.Bind does.
func (w *World) sent(r *replica, i int, response cluster.SendResponse) {
	c := &r.calls[i]
	gone := c.sending.Request == cluster.ReadPod && response.Pod == nil && response.Err == nil
	if c.sending = c.sending.Next(response); c.sending.Request == cluster.ReadPod {
		c.request = &request{verb: getPod, object: c.pod}
		return
	}
	pod := c.sending.Pod
	r.endRequest(w.scope.uid(c.pod), c.number, pod)
	if !gone {
		r.learn(c.pod, pod)
	}
	var err error
	if c.sending.Failure != nil {
		err = c.sending.Failure
	}
	w.step(r, i, binder.Result{Err: err})
}

// confirmed passes the response to the read of a pod that counts as bound.
func (w *World) confirmed(r *replica, done *request) {
	f := r.confirm
	r.confirm = nil
	if done.err != nil {
		return
	}
	current := r.cluster.confirms()
	truth := done.pod
	if w.scope.Mutation == ConfirmedFromCache {
		truth = r.cluster.PodByUID(f.assumed.UID)
	}
	if r.change(func(c *offline) { c.confirm(truth, epoch) }); current && existing(done.pod) == nil {
		r.decided[f.pod], r.bound[f.pod], r.gone[f.pod] = "", false, true
	}
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
		response.Now, response.Cached = epoch, r.cluster.Ledger(ledger.Name(w.scope.keys[l]))
		q.write = q.write.Next(response)
		response = ledger.Response{}
		switch q.write.Request.Kind {
		case ledger.ReadCache, ledger.Pause:
			continue
		case ledger.ReadLedger:
			q.request = &request{verb: getLedger, object: l}
		case ledger.PutLedger:
			q.request = &request{verb: putLedger, object: l, put: q.write.Request.Object}
		case ledger.ExamineAllocations:
			q.allocations = nil
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

// examineNext examines the next allocation for a write, and continues the write after the last one.
func (w *World) examineNext(r *replica, l int) {
	q := &r.writers[l]
	for len(q.allocations) < len(q.write.Request.Allocations) {
		e := q.write.Request.Allocations[len(q.allocations)]
		if e, q.request = w.examine(r, e); q.request != nil {
			q.allocations = append(slices.Clip(q.allocations), e)
			return
		}
		q.allocations = append(slices.Clip(q.allocations), e)
	}
	allocations := q.allocations
	q.allocations = nil
	w.next(r, l, ledger.Response{Allocations: allocations})
}

// examine continues an examination until it needs the API server, or has ended.
func (w *World) examine(r *replica, e ledger.Examination) (ledger.Examination, *request) {
	p := w.scope.index(e.Allocation.UID)
	for e.Err == nil {
		switch e.Request {
		case ledger.ReadCachedPod:
			e = e.Next(r.cluster.PodByUID(e.Allocation.UID), nil)
		case ledger.ReadPod:
			return e, w.ask(r, getPod, p)
		case ledger.TouchPod:
			return e, w.ask(r, touchPod, p)
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
	w.answer(r, done)
	last := len(q.allocations) - 1
	q.allocations = slices.Clone(q.allocations)
	var e ledger.Examination
	if e, q.request = w.examine(r, q.allocations[last].Next(done.pod, done.err)); q.request != nil {
		q.allocations[last] = e
		return
	}
	q.allocations[last] = e
	w.examineNext(r, l)
}

// swept passes the response to the request of a sweep.
func (w *World) swept(r *replica, done *request) {
	w.answer(r, done)
	s := r.sweep
	s.allocation, s.request = w.examine(r, s.allocation.Next(done.pod, done.err))
	switch {
	case s.request != nil:
	case s.allocation.Err == nil && s.allocation.Request == ledger.ReleaseAllocation:
		s.waits = r.submit(s.ledger, s.allocation.Release())
	default:
		r.sweep = nil
	}
}
