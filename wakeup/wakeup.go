package wakeup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/snapshot"
)

// Cluster is what a Waker needs of a cluster.
type Cluster interface {
	// View is what is true now. It is never nil.
	View() *snapshot.View
	// Superseded returns a channel that is closed once View returns another View than this one.
	Superseded(view *snapshot.View) <-chan struct{}
	// PodByUID returns the trimmed pod as last seen, or nil.
	PodByUID(uid types.UID) *corev1.Pod
	// RetryPod makes kube-scheduler try the pod once more. found is false if it is gone.
	RetryPod(ctx context.Context, namespace, name string, uid types.UID) (found bool, err error)
}

// Options are the parts of a Waker.
type Options struct {
	// Cluster is required.
	Cluster Cluster
	// PerSecond is how many pods are woken per second at most, 1 or more. Default 20.
	PerSecond int
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
	// Registerer gets the metrics. Nil: none.
	Registerer prometheus.Registerer
}

const (
	// rest is how long the Waker rests for each part of time it has judged pods.
	rest = 4
	// idle is how long it waits when nothing happens: then it looks for pods that are gone.
	idle = time.Minute
	// errorPause and forbiddenPause are how long nothing is written after the API server has failed, or refused.
	errorPause     = time.Second
	forbiddenPause = 5 * time.Minute
)

// Waker knows which pods wait, and wakes them. Its methods may be called concurrently.
type Waker struct {
	options Options
	metrics *metrics
	waiting atomic.Int64  // how many pods wait
	changed chan struct{} // capacity 1: somebody should look again

	mu      sync.Mutex
	queue   queue
	engines map[string]*engine.Engine

	// These belong to Run.
	notBefore time.Time // nobody is woken before
	failing   bool      // the last write failed, and that was logged
	nodes     []*snapshot.Node
}

// New returns a Waker.
func New(o Options) (*Waker, error) {
	if o.Cluster == nil {
		return nil, errors.New("wakeup: Cluster is required")
	}
	if o.PerSecond < 0 {
		return nil, errors.New("wakeup: PerSecond must not be negative")
	}
	if o.PerSecond == 0 {
		o.PerSecond = 20
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	w := &Waker{options: o, changed: make(chan struct{}, 1), queue: queue{pods: map[id]*waiting{}}}
	w.metrics = newMetrics(&w.waiting)
	if o.Registerer != nil {
		if err := o.Registerer.Register(w.metrics); err != nil {
			return nil, fmt.Errorf("wakeup: %w", err)
		}
	}
	return w, nil
}

// Use makes these the engines in force, by profile. Pods that wait because of others are judged again.
func (w *Waker) Use(engines map[string]*engine.Engine) {
	w.mu.Lock()
	w.engines = engines
	w.mu.Unlock()
	w.signal()
}

// Observer returns what is to be told of every filter call of a profile: see extender.Options.Filtered.
func (w *Waker) Observer(profile string, e *engine.Engine) func(req engine.Request, fits bool, unknown []string) {
	return func(req engine.Request, fits bool, unknown []string) {
		i := id{profile, req.Pod.UID}
		switch {
		case fits && w.waiting.Load() > 0:
			w.passed(i)
		case !fits && i.uid != "" && len(req.Nodes) > 0 && !snapshot.Gated(req.Pod):
			w.rejected(i, req, unknown, e)
		}
	}
}

// Status is what is known about a pod that waits.
type Status struct {
	// Since is when it was first rejected.
	Since time.Time
	// Woken is how often it was woken since, and Last when; zero if never.
	Woken int
	Last  time.Time
}

// Status returns what is known about a pod that waits because of the profile; ok is false if it does not.
func (w *Waker) Status(profile string, pod types.UID) (status Status, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.queue.pods[id{profile, pod}]; p != nil {
		return Status{p.since, p.wakes, p.woken}, true
	}
	return Status{}, false
}

func (w *Waker) passed(i id) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue.passed(i) {
		w.metrics.wakes.WithLabelValues(outcomeFits).Inc()
	}
	w.waiting.Store(int64(len(w.queue.pods)))
}

func (w *Waker) rejected(i id, req engine.Request, unknown []string, e *engine.Engine) {
	n := nodesOf(req, unknown)
	w.mu.Lock()
	defer w.mu.Unlock()
	known, vain := w.queue.rejected(i, req.Pod, n, judgement{req.View.Generation(), e}, time.Now())
	if !known {
		w.metrics.dropped.Inc()
	}
	if vain {
		w.metrics.wakes.WithLabelValues(outcomeRejected).Inc()
	}
	w.waiting.Store(int64(len(w.queue.pods)))
	if vain || w.options.Cluster.View().Generation() != req.View.Generation() { // it may have come between the judgement and now
		w.signal()
	}
}

func (w *Waker) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Run wakes pods until ctx ends. It may be called once.
func (w *Waker) Run(ctx context.Context) {
	for {
		view := w.options.Cluster.View()
		wait, worked := w.look(ctx)
		if !sleep(ctx, rest*worked) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-w.options.Cluster.Superseded(view):
		case <-w.changed:
		case <-time.After(wait):
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// look wakes a pod, if one is to be woken. It returns how long there is nothing to do unless something changes, and how long
// it has judged pods.
func (w *Waker) look(ctx context.Context) (wait, worked time.Duration) {
	now := time.Now()
	if wait := w.settle(now); wait > 0 {
		return wait, 0
	}
	if wait := w.notBefore.Sub(now); wait > 0 {
		return wait, 0
	}
	pod, wait := w.find(ctx, now)
	worked = time.Since(now)
	w.metrics.judging.Add(worked.Seconds())
	if pod != nil {
		w.wake(ctx, pod)
		return 0, worked
	}
	return wait, worked
}

// settle finds out what became of the pod that was woken last. It returns how long to wait for that, at most.
func (w *Waker) settle(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	current := w.queue.current
	if current == nil {
		return 0
	}
	outcome := outcomeUnanswered
	if pod := w.options.Cluster.PodByUID(current.uid); pod == nil || pod.Spec.NodeName != "" {
		outcome = outcomeFits // and perhaps another replica was asked
	} else if wait := patience - now.Sub(current.at); wait > 0 {
		return wait
	}
	if !current.fits {
		w.metrics.wakes.WithLabelValues(outcome).Inc()
	}
	w.queue.current = nil
	return 0
}

// find returns the most urgent pod that fits on a node by now. If there is none it returns how long there is none, as long as
// the View stays.
func (w *Waker) find(ctx context.Context, now time.Time) (*waiting, time.Duration) {
	w.mu.Lock()
	pods, next := w.queue.due(now)
	engines := w.engines
	w.mu.Unlock()
	for _, p := range pods {
		if ctx.Err() != nil {
			break
		}
		pod, e := w.options.Cluster.PodByUID(p.uid), engines[p.profile]
		switch {
		case pod == nil && now.Sub(p.asked) < idle: // kube-scheduler may know it earlier than we do
			continue
		case pod == nil, pod.Spec.NodeName != "", pod.DeletionTimestamp != nil, e == nil:
			w.update(func(q *queue) { q.forget(p) })
			continue
		}
		view := w.options.Cluster.View()
		j := judgement{view.Generation(), e}
		if p.judged == j {
			continue
		}
		w.nodes = p.nodes.in(view, w.nodes[:0])
		fits, err := e.FitsAny(ctx, engine.Request{Pod: pod, View: view, Nodes: w.nodes})
		if fits {
			return p, 0
		}
		if err == nil || ctx.Err() == nil { // a policy that cannot judge it could not in a filter call, either
			w.update(func(q *queue) { q.judgedAgain(p, j) })
		}
	}
	if next.IsZero() {
		return nil, idle
	}
	return nil, min(idle, next.Sub(now))
}

func (w *Waker) update(change func(*queue)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.queue)
	w.waiting.Store(int64(len(w.queue.pods)))
}

// wake wakes the pod, unless something newer is known about it.
func (w *Waker) wake(ctx context.Context, p *waiting) {
	now := time.Now()
	w.mu.Lock()
	woken := w.queue.wake(p, now) // before it is written: kube-scheduler may ask before that is known here
	w.mu.Unlock()
	if !woken {
		return
	}
	w.notBefore = now.Add(time.Second / time.Duration(w.options.PerSecond))
	found, err := w.options.Cluster.RetryPod(ctx, p.namespace, p.name, p.uid)
	if found && err == nil {
		w.metrics.patches.Inc()
		if w.failing {
			w.options.Logger.Info("waiting pods are woken again")
		}
		w.failing = false
		return
	}
	w.notWoken(p, err)
}

// notWoken takes that a pod was not woken because it is gone, or because of the error.
func (w *Waker) notWoken(p *waiting, err error) {
	outcome := outcomeGone
	w.update(func(q *queue) {
		if q.current != nil && q.current.id == p.id {
			q.current = nil
		}
		if err == nil {
			delete(q.pods, p.id)
		}
	})
	if err != nil {
		outcome, w.notBefore = outcomeError, time.Now().Add(errorPause)
		hint := ""
		if apierrors.IsForbidden(err) {
			w.notBefore = time.Now().Add(forbiddenPause)
			hint = "grant the verb patch on pods/status, or set requeue.perSecond to 0"
		}
		if !w.failing {
			w.options.Logger.Warn("a waiting pod was not woken although it fits by now", "pod", p.namespace+"/"+p.name, "error", err, "hint", hint)
		}
		w.failing = true
	}
	w.metrics.wakes.WithLabelValues(outcome).Inc()
}
