package simulate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"
)

// Load defines when jobs come.
type Load struct {
	// Offered is how much of the resource the running jobs would request on average, relative to
	// the capacity; more than 0.
	Offered float64
	// For is how long jobs come.
	For time.Duration
	// MinLifetime and MaxLifetime bound the lifetimes. Jobs without a lifetime get MaxLifetime.
	MinLifetime, MaxLifetime time.Duration
}

// Arrivals draws jobs at random, with their lifetimes, in a Poisson process. Pending jobs come at
// the start.
func (w *World) Arrivals(jobs []Job, load Load, seed uint64) ([]Job, error) {
	clip := func(j Job) time.Duration {
		if j.Lifetime <= 0 {
			return load.MaxLifetime
		}
		return min(load.MaxLifetime, max(load.MinLifetime, j.Lifetime))
	}
	work := 0.0 // average of a job: resource × seconds
	for _, j := range jobs {
		work += float64(demand(j.Pod, w.Resource)) * clip(j).Seconds() / float64(len(jobs))
	}
	capacity := float64(w.Capacity())
	if work <= 0 || capacity <= 0 || load.Offered <= 0 || load.For <= 0 {
		return nil, fmt.Errorf("pods, nodes and the load must all have some %s, and take some time", w.Resource)
	}
	random := rand.New(rand.NewPCG(seed, loadStream))
	between := work / (load.Offered * capacity) // seconds
	var arrivals []Job
	for _, j := range w.Pending {
		j.Lifetime, j.Created = clip(j), 0
		arrivals = append(arrivals, j)
	}
	for at := 0.0; ; {
		if at += random.ExpFloat64() * between; at >= load.For.Seconds() {
			return arrivals, nil
		}
		j := jobs[random.IntN(len(jobs))]
		j.Lifetime, j.Created = clip(j), time.Duration(at*float64(time.Second))
		arrivals = append(arrivals, j)
	}
}

// warmUp is the part of the time that is not measured, because the cluster is still filling up.
const warmUp = 0.25

// Replayed is the result for a stream of pods that come and go, without the warm-up.
type Replayed struct {
	// Requested is what running and waiting pods requested, relative to the capacity, and Served is
	// what was allocated, relative to the lower one of that and the capacity. Both are averages
	// over time.
	Requested, Served float64
	// Pods is how many pods came, Delayed how many of them were not scheduled immediately, and
	// Waited how long pods were pending on average, including those that were not delayed, and
	// those still pending at the end.
	Pods, Delayed int
	Waited        time.Duration
	// Waiting is how many pods are pending at the end.
	Waiting int
}

// departure is a pod that ends.
type departure struct {
	at     time.Duration
	uid    types.UID
	amount int64
}

func (d departure) compare(other departure) int {
	return cmp.Or(cmp.Compare(d.at, other.at), cmp.Compare(d.uid, other.uid))
}

// waiter is a pending pod.
type waiter struct {
	pod   *corev1.Pod
	job   Job
	kind  int           // equal for pods that differ only in their names
	ready time.Duration // when it came
}

// kindsOf numbers the pods of the jobs: pods that differ only in their names have the same number.
func kindsOf(jobs []Job) (map[*corev1.Pod]int, error) {
	kinds, byText := map[*corev1.Pod]int{}, map[string]int{}
	for _, j := range jobs {
		if _, known := kinds[j.Pod]; known {
			continue
		}
		text, err := json.Marshal([]any{j.Pod.Namespace, j.Pod.Labels, j.Pod.Annotations, j.Pod.Spec})
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", j.Pod.Name, err)
		}
		kind, known := byText[string(text)]
		if !known {
			kind = len(byText)
			byText[string(text)] = kind
		}
		kinds[j.Pod] = kind
	}
	return kinds, nil
}

// replay is the state of a World while pods come and go.
type replay struct {
	*run
	world                     *World
	capacity                  float64
	ends                      []departure // in order
	queue                     []waiter
	at                        time.Duration
	allocated, requested      int64
	servedTime, requestedTime float64 // integrals over the measured time, relative to the capacity
	counts                    time.Duration
	result                    Replayed
	waited                    time.Duration
}

// Replay simulates pods that come at their times and end after their lifetimes, until the given
// time. Pods that fit on no node stay pending, and are retried in the order in which they came,
// whenever a pod has ended.
func (w *World) Replay(ctx context.Context, jobs []Job, seed uint64, until time.Duration, progress func(float64)) (*Replayed, error) {
	capacity := w.Capacity()
	if capacity <= 0 {
		return nil, fmt.Errorf("no node has any %s", w.Resource)
	}
	jobs = slices.SortedStableFunc(slices.Values(jobs), func(a, b Job) int { return cmp.Compare(a.Created, b.Created) })
	kinds, err := kindsOf(jobs)
	if err != nil {
		return nil, err
	}
	r := &replay{run: w.begin(seed), world: w, capacity: float64(capacity), counts: time.Duration(warmUp * float64(until))}
	for i, j := range jobs {
		if j.Created >= until {
			break
		}
		if err := r.advance(ctx, j.Created); err != nil {
			return nil, err
		}
		pod := instance(j.Pod, fmt.Sprint(i), r.now)
		r.requested += demand(pod, w.Resource)
		r.arrive(pod)
		if j.Created >= r.counts {
			r.result.Pods++
		}
		waiting := waiter{pod, j, kinds[j.Pod], r.at}
		placed, err := r.try(ctx, waiting)
		if err != nil {
			return nil, err
		}
		if !placed {
			r.queue = append(r.queue, waiting)
			if r.at >= r.counts {
				r.result.Delayed++
			}
		}
		if progress != nil && i%100 == 0 {
			progress(float64(r.at) / float64(until))
		}
	}
	if err := r.advance(ctx, until); err != nil {
		return nil, err
	}
	return r.finish(until), nil
}

func (r *replay) finish(until time.Duration) *Replayed {
	for _, waiting := range r.queue {
		r.waits(waiting)
	}
	counted := (until - r.counts).Seconds()
	r.result.Waiting = len(r.queue)
	if counted > 0 {
		r.result.Requested = r.requestedTime / counted
		r.result.Served = r.servedTime / counted
	}
	if r.result.Pods > 0 {
		r.result.Waited = r.waited / time.Duration(r.result.Pods)
	}
	return &r.result
}

// advance ends pods up to the time, and retries pending ones.
func (r *replay) advance(ctx context.Context, to time.Duration) error {
	for len(r.ends) > 0 && r.ends[0].at <= to {
		end := r.ends[0]
		r.ends = r.ends[1:]
		r.pass(end.at)
		r.allocated -= end.amount
		r.requested -= end.amount
		r.remove(end.uid)
		if err := r.retry(ctx); err != nil {
			return err
		}
	}
	r.pass(to)
	return nil
}

// pass advances the time without events.
func (r *replay) pass(to time.Duration) {
	if from := max(r.at, r.counts); to > from {
		seconds := (to - from).Seconds()
		r.requestedTime += seconds * float64(r.requested) / r.capacity
		if possible := math.Min(float64(r.requested), r.capacity); possible > 0 {
			r.servedTime += seconds * float64(r.allocated) / possible
		} else {
			r.servedTime += seconds
		}
	}
	r.at = to
	r.now = start.Add(to)
}

// retry retries all pending pods. If one fits on no node, it skips others like it.
func (r *replay) retry(ctx context.Context) error {
	full := map[int]bool{}
	kept := r.queue[:0]
	for i, waiting := range r.queue {
		placed := false
		if !full[waiting.kind] {
			var err error
			if placed, err = r.try(ctx, waiting); err != nil {
				r.queue = append(kept, r.queue[i:]...)
				return err
			}
		}
		if placed {
			r.waits(waiting)
		} else {
			full[waiting.kind] = true
			kept = append(kept, waiting)
		}
	}
	r.queue = kept
	return nil
}

// waits adds the time for which a pod was pending.
func (r *replay) waits(w waiter) {
	if w.ready >= r.counts {
		r.waited += r.at - w.ready
	}
}

// try schedules the pod if it fits.
func (r *replay) try(ctx context.Context, w waiter) (placed bool, err error) {
	switch err := r.schedule(ctx, w.pod); {
	case errors.Is(err, errNowhere):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("pod %s: %w", w.pod.Name, err)
	}
	requested := demand(w.pod, r.world.Resource)
	r.allocated += requested
	if w.job.Lifetime > 0 {
		end := departure{r.at + w.job.Lifetime, w.pod.UID, requested}
		i, _ := slices.BinarySearchFunc(r.ends, end, departure.compare)
		r.ends = slices.Insert(r.ends, i, end)
	}
	return true, nil
}
