package requeue

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/snapshot"
)

// Cluster is the part of a cluster that a Requeuer uses.
type Cluster interface {
	// View returns the latest view. It is never nil.
	View() *snapshot.View
	// Superseded returns a channel that is closed once View returns another View than this one.
	Superseded(view *snapshot.View) <-chan struct{}
	// PodByUID returns the trimmed pod in its latest known state, or nil.
	PodByUID(uid types.UID) *corev1.Pod
	// RetryPod makes kube-scheduler retry the pod. found is false if the pod does not exist.
	RetryPod(ctx context.Context, namespace, name string, uid types.UID) (found bool, err error)
	// NominatePod is like RetryPod, and sets the node that kube-scheduler tries first; "": none.
	NominatePod(ctx context.Context, pod *corev1.Pod, node string) (found bool, err error)
}

// Options configure a Requeuer.
type Options struct {
	// Cluster is required.
	Cluster Cluster
	// PerSecond is the maximum number of pods requeued per second. 0: none; the pods and why they
	// wait are known all the same.
	PerSecond int
	// Ignored returns the resources with ignoredByScheduler. Nil: no call is for a sample of the
	// nodes, because kube-scheduler has the policies as a plugin.
	Ignored func() []corev1.ResourceName
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
	// Registerer receives the metrics; it has none of these names. Nil: none.
	Registerer prometheus.Registerer
}

const (
	// pauseFactor is how long the Requeuer pauses, relative to the time it has spent evaluating
	// pods.
	pauseFactor = 4
	// idleInterval is how often it removes deleted pods while nothing else happens.
	idleInterval = time.Minute
	// unseenInterval is how often it looks for a pod that the watch does not show yet: that the
	// watch shows the pod changes no View.
	unseenInterval = time.Second
	// errorPause and forbiddenPause are how long it writes nothing after the API server has failed,
	// or denied a write.
	errorPause     = time.Second
	forbiddenPause = 5 * time.Minute
)

// Requeuer tracks pending pods and requeues them. Its methods are safe for concurrent use.
type Requeuer struct {
	options Options
	metrics *metrics
	changed chan struct{} // capacity 1; sent to when there may be work

	mu      sync.Mutex
	queue   queue
	engines map[string]*engine.Engine

	// Only Run uses these.
	notBefore       time.Time // no pod is requeued before
	lastWriteFailed bool      // the last write failed, and that was logged
	nodes           []*snapshot.Node

	choosing sync.Mutex // for result
	result   engine.Result
}

// New returns a Requeuer.
func New(o Options) *Requeuer {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	r := &Requeuer{options: o, changed: make(chan struct{}, 1), queue: queue{pods: map[id]*pendingPod{}}}
	r.metrics = newMetrics(o.Registerer, func() (pending float64) {
		r.update(func(q *queue) { pending = float64(len(q.pods)) })
		return pending
	})
	return r
}

// Use replaces the engines, by profile. Pods that another engine rejected are evaluated again.
func (r *Requeuer) Use(engines map[string]*engine.Engine) {
	r.mu.Lock()
	r.engines = engines
	r.mu.Unlock()
	r.signal()
}

// Observer returns the function to call for every filter call of a profile: see
// extender.Options.Filtered.
func (r *Requeuer) Observer(profile string, e *engine.Engine) func(req engine.Request, fits bool, unknown []string, why *decision.Rejection) {
	return func(req engine.Request, fits bool, unknown []string, why *decision.Rejection) {
		i := id{profile, req.Pod.UID}
		switch {
		case fits:
			r.passed(i)
		case i.uid != "" && len(req.Nodes) > 0 && !snapshot.Gated(req.Pod):
			r.rejected(i, req, unknown, why, e)
		}
	}
}

// Status describes a pending pod.
type Status struct {
	// Since is when Outboard first rejected the pod.
	Since time.Time
	// Requeues is how often Outboard has requeued the pod since, and LastRequeued when it last did;
	// zero if never.
	Requeues     int
	LastRequeued time.Time
	// LastCall is when kube-scheduler last asked about the pod, Nodes about how many nodes, and
	// Rejection why most of them were rejected.
	LastCall  time.Time
	Nodes     int
	Rejection decision.Rejection
}

// Status returns the status of a pod that the profile rejected; ok is false if the pod is not
// pending because of it.
func (r *Requeuer) Status(profile string, pod types.UID) (status Status, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.queue.pods[id{profile, pod}]; p != nil {
		return p.Status, true
	}
	return Status{}, false
}

// Version returns a number that is another one after each change of what Status returns.
func (r *Requeuer) Version() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queue.version
}

func (r *Requeuer) passed(i id) {
	wasRequeued := false
	r.update(func(q *queue) { wasRequeued = q.passed(i) })
	if wasRequeued {
		r.metrics.requeues.WithLabelValues(outcomeSuccess).Inc()
	}
}

func (r *Requeuer) rejected(i id, req engine.Request, unknown []string, why *decision.Rejection, e *engine.Engine) {
	n, main := nodesOf(req, unknown), decision.Rejection{}
	if why != nil {
		main = why.Brief()
	}
	eval := evaluation{req.View.FreedGeneration(), e}
	samples := 0
	if asked, all := len(req.Nodes), req.View.Len(); r.options.Ignored != nil && kubescheduler.Sampled(asked, all) {
		samples = (all + asked - 1) / asked
	}
	if samples > 0 || req.Pod.Status.NominatedNodeName != "" { // perhaps not among the nodes of the call
		eval = evaluation{}
	}
	var added, wasRequeued bool
	r.update(func(q *queue) { added, wasRequeued = q.rejected(i, req.Pod, n, samples, main, eval, time.Now()) })
	if !added {
		r.metrics.dropped.Inc()
	}
	if wasRequeued {
		r.metrics.requeues.WithLabelValues(outcomeRejected).Inc()
	}
	// Run may have seen the newer View already.
	if wasRequeued || samples > 0 || r.options.Cluster.View().FreedGeneration() != req.View.FreedGeneration() {
		r.signal()
	}
}

func (r *Requeuer) update(change func(*queue)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.queue)
}

func (r *Requeuer) signal() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Run requeues pods until ctx ends. Call it once.
func (r *Requeuer) Run(ctx context.Context) {
	for {
		view := r.options.Cluster.View()
		wait, worked := r.step(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pauseFactor * worked):
		}
		select {
		case <-ctx.Done():
			return
		case <-r.options.Cluster.Superseded(view):
		case <-r.changed:
		case <-time.After(wait):
		}
	}
}

// step requeues at most one pod. It returns how long to wait unless something changes, and how long
// it has evaluated pods.
func (r *Requeuer) step(ctx context.Context) (wait, worked time.Duration) {
	now := time.Now()
	if wait := r.awaitOutcome(now); wait > 0 {
		return wait, 0
	}
	if wait := r.notBefore.Sub(now); wait > 0 {
		return wait, 0
	}
	next, wait := r.nextFitting(ctx, now)
	worked = time.Since(now)
	r.metrics.evaluating.Add(worked.Seconds())
	if next.pendingPod != nil {
		r.requeue(ctx, next)
		return 0, worked
	}
	return wait, worked
}

// awaitOutcome records the outcome of the last requeue. It returns how long to wait if that is not
// known yet.
func (r *Requeuer) awaitOutcome(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	current := r.queue.current
	if current == nil {
		return 0
	}
	outcome := outcomeTimeout
	if pod := r.options.Cluster.PodByUID(current.uid); pod == nil || pod.Spec.NodeName != "" {
		outcome = outcomeSuccess // perhaps kube-scheduler asked another replica
	} else if wait := maxWait - now.Sub(current.at); wait > 0 {
		return wait
	}
	if !current.fits {
		r.metrics.requeues.WithLabelValues(outcome).Inc()
	}
	r.queue.current = nil
	return 0
}

// fitting is a pod that now fits on a node.
type fitting struct {
	*pendingPod             // nil: there is none
	pod         *corev1.Pod // as the cluster knows it
	node        string      // to which it is to be nominated; "": none
}

// nextFitting returns the most urgent pod that now fits on a node. If there is none, it returns how
// long to wait unless the View changes.
func (r *Requeuer) nextFitting(ctx context.Context, now time.Time) (fitting, time.Duration) {
	r.mu.Lock()
	pods, next := r.queue.due(now)
	engines := r.engines
	r.mu.Unlock()
	wait := idleInterval
	for _, p := range pods {
		if ctx.Err() != nil {
			break
		}
		pod, e := r.options.Cluster.PodByUID(p.uid), engines[p.profile]
		switch {
		case pod == nil && now.Sub(p.LastCall) < idleInterval: // kube-scheduler may see a new pod before Outboard does
			wait = unseenInterval
			continue
		case pod == nil, pod.Spec.NodeName != "", pod.DeletionTimestamp != nil, e == nil:
			r.update(func(q *queue) { q.remove(p) })
			continue
		case r.options.PerSecond == 0:
			continue
		}
		view := r.options.Cluster.View()
		eval := evaluation{view.FreedGeneration(), e}
		if p.evaluated == eval {
			continue
		}
		if snapshot.IsReduced(pod) { // it cannot be evaluated here: kube-scheduler has the whole pod
			return fitting{p, pod, pod.Status.NominatedNodeName}, 0
		}
		node, fits, err := r.choose(ctx, p, e, pod, view)
		if fits {
			return fitting{p, pod, node}, 0
		}
		if err == nil || ctx.Err() == nil { // a filter call would fail in the same way
			r.update(func(q *queue) { q.stillRejected(p, eval) })
		}
	}
	if next.IsZero() {
		return fitting{}, wait
	}
	return fitting{}, min(wait, next.Sub(now))
}

// patience is how many requeues without a call may follow a nomination before it is replaced:
// kube-scheduler may be busy, or its own filters reject all nodes.
const patience = 4

// choose reports whether to requeue the pod, because it fits on a node, and to which one it is to be
// nominated. A node that was tried without success is kept for the pod no longer.
func (r *Requeuer) choose(ctx context.Context, p *pendingPod, e *engine.Engine, pod *corev1.Pod, view *snapshot.View) (node string, fits bool, err error) {
	nominated := view.Node(pod.Status.NominatedNodeName)
	if awaited := p.LastRequeued.After(p.LastCall) && p.failures < patience; p.samples > 0 && !awaited {
		node, err = r.best(ctx, p, e, engine.Request{Pod: pod, View: view})
		fits = node != ""
		if !fits || len(p.tried) >= p.samples {
			node = pod.Status.NominatedNodeName
		}
		if slices.Contains(p.tried, node) {
			node, fits = "", true
		}
		return node, fits, err
	}
	r.nodes = p.nodes.in(view, r.nodes[:0])
	if nominated != nil && !slices.ContainsFunc(nominated.Pods, terminating) {
		r.nodes = append(r.nodes, nominated)
	}
	fits, err = e.FitsAny(ctx, engine.Request{Pod: pod, View: view, Nodes: r.nodes})
	return pod.Status.NominatedNodeName, fits, err
}

// best returns the best node of the View on which the pod fits, also by what is known of
// kube-scheduler's own filters, except those to which it was nominated, unless these are as many as
// kube-scheduler needs samples for all nodes; "" if there is none.
func (r *Requeuer) best(ctx context.Context, p *pendingPod, e *engine.Engine, req engine.Request) (string, error) {
	r.choosing.Lock()
	defer r.choosing.Unlock()
	c, _ := e.Begin(ctx, req.Pod, req.View) // Best returns the error
	c.TakeNodeCache()
	defer c.ReturnNodeCache()
	filters := kubescheduler.For(req.Pod, r.options.Ignored()...).In(req.View)
	choice := engine.Choice{N: 1}
	for n := range req.View.All() {
		choice.Rows = append(choice.Rows, int32(n.Row()))
	}
	choice.Usable = func(i int32) (usable, stop bool) {
		n := c.CountNominated(req.View.At(int(choice.Rows[i])))
		tried := len(p.tried) < p.samples && slices.Contains(p.tried, n.Name)
		return !tried && filters.Excludes(n.Object) == "" && filters.Lacks(n) == "", false
	}
	err := c.Best(ctx, choice, &r.result)
	if err != nil || len(r.result.Kept) == 0 {
		return "", err
	}
	return req.View.At(int(choice.Rows[r.result.Kept[0]])).Name, nil
}

// Elsewhere returns a node that kube-scheduler did not ask about, and on which the pod, which the
// profile has rejected, fits without an eviction; "" if there is none. kube-scheduler is about to
// try the pod there.
func (r *Requeuer) Elsewhere(ctx context.Context, profile string, req engine.Request) (node string) {
	r.mu.Lock()
	p, e := r.queue.pods[id{profile, req.Pod.UID}], r.engines[profile]
	r.mu.Unlock()
	if p == nil || e == nil || len(p.tried) >= p.samples || r.options.PerSecond == 0 {
		return ""
	}
	node, _ = r.best(ctx, p, e, req) // a policy that fails in it fails in Preempt, too
	return node
}

func terminating(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil }

// requeue requeues the pod, unless it has changed in the queue since.
func (r *Requeuer) requeue(ctx context.Context, f fitting) {
	p, now := f.pendingPod, time.Now()
	r.mu.Lock()
	ok := r.queue.requeue(p, f.node, now) // before the write: kube-scheduler may ask before the write returns
	r.mu.Unlock()
	if !ok {
		return
	}
	r.notBefore = now.Add(time.Second / time.Duration(r.options.PerSecond))
	var found bool
	var err error
	if f.node == f.pod.Status.NominatedNodeName {
		found, err = r.options.Cluster.RetryPod(ctx, p.namespace, p.name, p.uid)
	} else {
		found, err = r.options.Cluster.NominatePod(ctx, f.pod, f.node)
	}
	if found && err == nil {
		r.metrics.patches.Inc()
		if r.lastWriteFailed {
			r.options.Logger.Info("requeuing pending pods works again")
		}
		r.lastWriteFailed = false
		return
	}
	r.notRequeued(p, err)
}

// notRequeued records that a pod was not requeued because it does not exist, or because of the
// error.
func (r *Requeuer) notRequeued(p *pendingPod, err error) {
	outcome := outcomeNotFound
	r.update(func(q *queue) {
		if q.current != nil && q.current.id == p.id {
			q.current = nil
		}
		if err == nil {
			q.delete(p.id)
		}
	})
	if err != nil {
		outcome, r.notBefore = outcomeError, time.Now().Add(errorPause)
		hint := ""
		if apierrors.IsForbidden(err) {
			r.notBefore = time.Now().Add(forbiddenPause)
			hint = "grant the verb patch on pods/status, or set requeue.perSecond to 0"
		}
		if !r.lastWriteFailed {
			r.options.Logger.Warn("cannot requeue a pending pod that now fits", "pod", p.namespace+"/"+p.name, "error", err, "hint", hint)
		}
		r.lastWriteFailed = true
	}
	r.metrics.requeues.WithLabelValues(outcome).Inc()
}
