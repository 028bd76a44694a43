package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"outboard.dev/outboard/bench/replay"
	"outboard.dev/outboard/test/stage"
)

// comeAndGo says how pods are created and deleted.
type comeAndGo struct {
	hours  time.Duration // of the trace
	faster float64       // how many times as fast as in the trace time passes
	load   float64
}

// comeAndGo replays pods that come and go for each arm, through kube-scheduler and in the
// simulation, and reports both. Times in the report are those of the trace. The backoff of
// kube-scheduler and of Outboard is not faster: a pod that waits does so for some minutes more.
func (o *options) comeAndGo(ctx context.Context, c comeAndGo, out, progress io.Writer) error {
	w := o.world()
	jobs, err := replay.Arrivals(w, o.jobs, replay.Load{Offered: c.load, For: c.hours, MinLifetime: time.Minute, MaxLifetime: 6 * time.Hour}, o.seed)
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "%d nodes, %d pods in %v\n", len(o.nodes), len(jobs), (time.Duration(float64(c.hours) / c.faster)).Round(time.Second))
	var names []string
	var results [][]*replay.Result
	for i := range o.arms {
		a := &o.arms[i]
		if w.Scheduler, w.Extenders, err = a.simulated(); err != nil {
			return err
		}
		w.Scheduler.PercentageOfNodesToScore = o.percentage
		predicted, err := replay.Play(ctx, w, jobs, o.seed, c.hours)
		if err != nil {
			return err
		}
		measured, err := o.playDepartures(ctx, a, c, jobs, progress)
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		names = append(names, a.name, a.name+", simulated")
		results = append(results, []*replay.Result{measured}, []*replay.Result{predicted})
	}
	return replay.Report(out, names, results)
}

// playDepartures replays the pods with the arm in a control plane.
func (o *options) playDepartures(ctx context.Context, a *arm, c comeAndGo, jobs []replay.Arrival, progress io.Writer) (_ *replay.Result, err error) {
	s, err := stage.Set(ctx, stage.Options{Outboard: o.binary})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	p := &play{Stage: s}
	for i, j := range jobs {
		pod := newPod(j.Pod)
		pod.Name = fmt.Sprintf("pod-%d", i)
		p.pods = append(p.pods, pod)
	}
	if err := p.setUp(ctx, o, a); err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(p.AdminConfig())
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, time.Duration(float64(c.hours)/c.faster))
	d := &departures{comeAndGo: c, jobs: jobs, stays: make([]stay, len(jobs)), tally: p.tally, client: client.CoreV1().Pods(p.pods[0].Namespace)}
	d.end, _ = ctx.Deadline()
	ended, err := p.follow(ctx, func(pod *corev1.Pod) {
		p.tally.see(pod)
		d.see(ctx, pod)
	})
	defer func() {
		stop()
		ended()
		d.deleting.Wait()
	}()
	if err != nil {
		return nil, err
	}
	go p.tell(ctx, a.name, progress)
	started := time.Now()
	creating, _ := errgroup.WithContext(ctx)
	creating.SetLimit(8) // or else a busy API server delays the pods after one
	for i, pod := range p.pods {
		select {
		case <-time.After(time.Until(started.Add(d.real(jobs[i].At)))):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		creating.Go(func() error {
			d.created(i)
			if _, err := d.client.Create(ctx, pod, metav1.CreateOptions{}); err != nil && ctx.Err() == nil {
				return fmt.Errorf("creating pod %s: %w", pod.Name, err)
			}
			p.tally.create()
			return nil
		})
	}
	if err := creating.Wait(); err != nil {
		return nil, err
	}
	if <-ctx.Done(); !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, context.Cause(ctx)
	}
	if skipped := p.skipped(); skipped > 0 {
		return nil, fmt.Errorf("kube-scheduler placed %d pods without Outboard", skipped)
	}
	return d.result(started, float64(p.tally.capacity)), nil
}

// stay is when a pod was created, bound and deleted; zero: not yet.
type stay struct {
	created, bound, deleted time.Time
	rejected                bool
}

// departures are the pods of a replay. It may be used concurrently.
type departures struct {
	comeAndGo
	jobs     []replay.Arrival
	end      time.Time
	client   typedcorev1.PodInterface
	tally    *tally
	deleting sync.WaitGroup

	mu    sync.Mutex
	stays []stay // of jobs
}

// real is a duration of the trace by the clock of this machine.
func (d *departures) real(trace time.Duration) time.Duration {
	return time.Duration(float64(trace) / d.faster)
}

func (d *departures) created(i int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stays[i].created = time.Now()
}

// see deletes the pod after its lifetime once it is on a node.
func (d *departures) see(ctx context.Context, pod *corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, err := strconv.Atoi(strings.TrimPrefix(pod.Name, "pod-"))
	if err != nil {
		return
	}
	s := &d.stays[i]
	s.rejected = s.rejected || unschedulable(pod)
	if pod.Spec.NodeName == "" || !s.bound.IsZero() {
		return
	}
	s.bound = time.Now()
	lifetime := d.real(d.jobs[i].Lifetime)
	d.deleting.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(lifetime):
		}
		d.mu.Lock()
		d.stays[i].deleted = time.Now()
		d.mu.Unlock()
		d.tally.end(i)
		_ = d.client.Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0)) // fails at the end of the replay only
	})
}

// result is what the simulation reports, by the time of the trace.
func (d *departures) result(started time.Time, capacity float64) *replay.Result {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &replay.Result{}
	counts := started.Add(time.Duration(replay.WarmUp * float64(d.end.Sub(started))))
	type change struct {
		at                   time.Time
		requested, allocated float64 // relative to the capacity
	}
	var changes []change
	for i := range d.stays {
		s, size := &d.stays[i], float64(demand(d.jobs[i].Pod))/capacity
		if s.created.IsZero() {
			continue
		}
		changes = append(changes, change{s.created, size, 0})
		wait := d.end.Sub(s.created)
		if !s.bound.IsZero() {
			wait = s.bound.Sub(s.created)
			changes = append(changes, change{s.bound, 0, size})
		} else {
			r.Waiting++
		}
		if !s.deleted.IsZero() {
			changes = append(changes, change{s.deleted, -size, -size})
		}
		if s.created.Before(counts) {
			continue
		}
		wait = time.Duration(float64(wait) * d.faster)
		r.Pods++
		if s.rejected {
			r.Delayed++
		}
		r.Waited += wait
		of := replay.SizeOf(d.jobs[i].Pod)
		r.Waits[of] = append(r.Waits[of], wait)
	}
	r.Waited /= time.Duration(max(1, r.Pods))
	slices.SortFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })
	changes = append(changes, change{at: d.end})
	requested, allocated, at := 0.0, 0.0, counts
	for _, c := range changes {
		if c.at.After(at) {
			part := float64(c.at.Sub(at)) / float64(d.end.Sub(counts))
			r.Requested += part * requested
			r.Allocated += part * allocated
			r.Served += part * allocated / max(min(1, requested), allocated, 1e-9)
			at = c.at
		}
		requested, allocated = requested+c.requested, allocated+c.allocated
	}
	return r
}
