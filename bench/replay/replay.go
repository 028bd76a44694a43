// Package replay plays pods that arrive and end, with the lifetimes of a trace, in a simulated
// cluster, and reports how long they were pending.
package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/bench/trials"
	"outboard.dev/outboard/internal/gpushare"
	"outboard.dev/outboard/internal/simulate"
	"outboard.dev/outboard/test/openb"
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

// loadStream is the stream of a seed that decides when pods come; package simulate uses 0 and 2.
const loadStream = 1

// Arrival is a job that comes at a time.
type Arrival struct {
	openb.Job
	At time.Duration
}

// Arrivals draws jobs at random, with their lifetimes, in a Poisson process.
func Arrivals(w *simulate.World, jobs []openb.Job, load Load, seed uint64) ([]Arrival, error) {
	clip := func(j openb.Job) time.Duration {
		if j.Lifetime <= 0 {
			return load.MaxLifetime
		}
		return min(load.MaxLifetime, max(load.MinLifetime, j.Lifetime))
	}
	work := 0.0 // average of a job: resource × seconds
	for _, j := range jobs {
		work += float64(simulate.Demand(j.Pod, w.Resource)) * clip(j).Seconds() / float64(len(jobs))
	}
	capacity := float64(w.Capacity())
	if work <= 0 || capacity <= 0 || load.Offered <= 0 || load.For <= 0 {
		return nil, fmt.Errorf("pods, nodes and the load must all have some %s, and take some time", w.Resource)
	}
	random := rand.New(rand.NewPCG(seed, loadStream))
	between := work / (load.Offered * capacity) // seconds
	var all []Arrival
	for at := 0.0; ; {
		if at += random.ExpFloat64() * between; at >= load.For.Seconds() {
			return all, nil
		}
		j := jobs[random.IntN(len(jobs))]
		j.Lifetime = clip(j)
		all = append(all, Arrival{j, time.Duration(at * float64(time.Second))})
	}
}

// WarmUp is the part of the time that is not measured, because the cluster is still filling up.
const WarmUp = 0.25

// Result is the result for a stream of pods that come and go, without the warm-up.
type Result struct {
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
	// Allocated is what was allocated, relative to the capacity, on average over time.
	Allocated float64
	// Waits are how long pods were pending, by what they request: an index of PodSizes.
	Waits [len(PodSizes)][]time.Duration
}

// PodSizes are the pods whose waits are reported separately.
var PodSizes = [...]string{"no GPU", "part of a GPU", "1 GPU", "2 to 7 GPUs", "8 GPUs"}

// SizeOf returns the index of the pod's size.
func SizeOf(pod *corev1.Pod) int {
	units := simulate.Demand(pod, gpushare.Memory)
	gpus, err := strconv.Atoi(pod.Labels[gpushare.Count])
	switch {
	case units == 0:
		return 0
	case err != nil && units < openb.Units:
		return 1
	case err != nil:
		return 2
	case gpus < 8:
		return 3
	}
	return 4
}

// departure is a pod that ends.
type departure struct {
	at   time.Duration
	uid  types.UID
	node string
	size demand
}

func (d departure) compare(other departure) int {
	return cmp.Or(cmp.Compare(d.at, other.at), cmp.Compare(d.uid, other.uid))
}

// demand is a part of what a pod requests, or of what is free on a node.
type demand struct{ amount, cpu int64 }

// waiter is a pending pod.
type waiter struct {
	pod   *corev1.Pod
	job   openb.Job
	size  demand
	kind  int           // equal for pods that differ only in their names
	ready time.Duration // when it came
}

// kindsOf numbers the pods of the jobs: pods that differ only in their names have the same number.
func kindsOf(jobs []Arrival) (map[*corev1.Pod]int, error) {
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

// replaying is the state of a cluster while pods come and go.
type replaying struct {
	run                  *simulate.Run
	capacity             float64
	ends                 []departure // in order
	queue                []waiter
	free                 map[string]demand // by node
	bound                string            // the node of the last pod that was bound
	at                   time.Duration
	allocated, requested int64
	// Integrals over the measured time, relative to the capacity:
	servedTime, requestedTime, allocatedTime float64
	counts                                   time.Duration
	result                                   Result
}

// Play simulates pods that come at their times and end after their lifetimes, until the given
// time. Pods that fit on no node stay pending, and are retried in the order in which they came,
// whenever a pod has ended.
func Play(ctx context.Context, w *simulate.World, jobs []Arrival, seed uint64, until time.Duration) (*Result, error) {
	capacity := w.Capacity()
	if capacity <= 0 {
		return nil, fmt.Errorf("no node has any %s", w.Resource)
	}
	jobs = slices.SortedStableFunc(slices.Values(jobs), func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
	kinds, err := kindsOf(jobs)
	if err != nil {
		return nil, err
	}
	r := &replaying{capacity: float64(capacity), counts: time.Duration(WarmUp * float64(until)), free: map[string]demand{}}
	for _, n := range w.Nodes {
		amount := n.Status.Allocatable[w.Resource]
		r.free[n.Name] = demand{amount.Value(), n.Status.Allocatable.Cpu().MilliValue()}
	}
	observed := *w
	observed.Bound = func(pod *corev1.Pod) { r.bound = pod.Spec.NodeName }
	r.run = observed.Begin(seed)
	for i, j := range jobs {
		if j.At >= until {
			break
		}
		if err := r.advance(ctx, j.At); err != nil {
			return nil, err
		}
		pod := r.run.Arrive(j.Pod, fmt.Sprint(i), j.At)
		if j.At >= r.counts {
			r.result.Pods++
		}
		size := demand{simulate.Demand(pod, w.Resource), simulate.Demand(pod, corev1.ResourceCPU)}
		waiting := waiter{pod, j.Job, size, kinds[j.Pod], r.at}
		r.requested += size.amount
		placed, err := r.try(ctx, waiting)
		if err != nil {
			return nil, err
		}
		if placed {
			r.waits(waiting)
		} else {
			r.queue = append(r.queue, waiting)
			if r.at >= r.counts {
				r.result.Delayed++
			}
		}
	}
	if err := r.advance(ctx, until); err != nil {
		return nil, err
	}
	return r.finish(until), nil
}

func (r *replaying) finish(until time.Duration) *Result {
	for _, waiting := range r.queue {
		r.waits(waiting)
	}
	counted := (until - r.counts).Seconds()
	r.result.Waiting = len(r.queue)
	if counted > 0 {
		r.result.Requested = r.requestedTime / counted
		r.result.Served = r.servedTime / counted
		r.result.Allocated = r.allocatedTime / counted
	}
	for _, waits := range r.result.Waits {
		for _, wait := range waits {
			r.result.Waited += wait
		}
	}
	r.result.Waited /= time.Duration(max(1, r.result.Pods))
	return &r.result
}

// advance ends pods up to the time, and retries pending ones.
func (r *replaying) advance(ctx context.Context, to time.Duration) error {
	for len(r.ends) > 0 && r.ends[0].at <= to {
		end := r.ends[0]
		r.ends = r.ends[1:]
		r.pass(end.at)
		r.allocated -= end.size.amount
		r.requested -= end.size.amount
		r.run.End(end.uid, end.at)
		free := r.free[end.node]
		free = demand{free.amount + end.size.amount, free.cpu + end.size.cpu}
		r.free[end.node] = free
		if err := r.retry(ctx, end.node); err != nil {
			return err
		}
	}
	r.pass(to)
	return nil
}

// pass advances the time without events.
func (r *replaying) pass(to time.Duration) {
	if from := max(r.at, r.counts); to > from {
		seconds := (to - from).Seconds()
		r.requestedTime += seconds * float64(r.requested) / r.capacity
		r.allocatedTime += seconds * float64(r.allocated) / r.capacity
		if possible := math.Min(float64(r.requested), r.capacity); possible > 0 {
			r.servedTime += seconds * float64(r.allocated) / possible
		} else {
			r.servedTime += seconds
		}
	}
	r.at = to
}

// retry retries all pending pods, none of which fits on another node than the given one. If one
// fits on no node, it skips others like it.
func (r *replaying) retry(ctx context.Context, node string) error {
	full := map[int]bool{}
	kept := r.queue[:0]
	for i, waiting := range r.queue {
		placed := false
		free := r.free[node]
		if !full[waiting.kind] && waiting.size.amount <= free.amount && waiting.size.cpu <= free.cpu {
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
func (r *replaying) waits(w waiter) {
	if w.ready >= r.counts {
		size := SizeOf(w.job.Pod)
		r.result.Waits[size] = append(r.result.Waits[size], r.at-w.ready)
	}
}

// try schedules the pod if it fits.
func (r *replaying) try(ctx context.Context, w waiter) (placed bool, err error) {
	switch err := r.run.Schedule(ctx, w.pod); {
	case errors.Is(err, simulate.ErrNowhere):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("pod %s: %w", w.pod.Name, err)
	}
	r.allocated += w.size.amount
	free := r.free[r.bound]
	r.free[r.bound] = demand{free.amount - w.size.amount, free.cpu - w.size.cpu}
	if w.job.Lifetime > 0 {
		end := departure{r.at + w.job.Lifetime, w.pod.UID, r.bound, w.size}
		i, _ := slices.BinarySearchFunc(r.ends, end, departure.compare)
		r.ends = slices.Insert(r.ends, i, end)
	}
	return true, nil
}

// Report writes how pods that come and go were served by each contender, with all seeds.
func Report(w io.Writer, names []string, results [][]*Result) error {
	table := trials.NewTable(w, "", "requested %", "served %", "allocated %", "pods", "delayed %", "mean wait, s", "waiting at the end")
	for i, name := range names {
		of := func(digits int, value func(*Result) float64) string {
			var values []float64
			for _, r := range results[i] {
				values = append(values, value(r))
			}
			return trials.Figures(values).Text(digits)
		}
		table.Row(name,
			of(2, func(r *Result) float64 { return 100 * r.Requested }),
			of(2, func(r *Result) float64 { return 100 * r.Served }),
			of(2, func(r *Result) float64 { return 100 * r.Allocated }),
			of(0, func(r *Result) float64 { return float64(r.Pods) }),
			of(2, func(r *Result) float64 { return 100 * float64(r.Delayed) / float64(max(1, r.Pods)) }),
			of(2, func(r *Result) float64 { return r.Waited.Seconds() }),
			of(1, func(r *Result) float64 { return float64(r.Waiting) }))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nWaits in seconds, mean and p99 (mean over the seeds, and that of the worst seed):")
	table = trials.NewTable(w, append([]string{""}, PodSizes[:]...)...)
	for i, name := range names {
		row := []any{name}
		for size := range PodSizes {
			row = append(row, waitsOf(results[i], size))
		}
		table.Row(row...)
	}
	return table.Flush()
}

// waitsOf returns the mean and the p99 of the waits of pods of the size, as text.
func waitsOf(results []*Result, size int) string {
	means, p99s := ofSize(results, size)
	if len(means) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f (%.1f), p99 %.0f (%.0f)", mean(means).Seconds(), slices.Max(means).Seconds(), mean(p99s).Seconds(), slices.Max(p99s).Seconds())
}
