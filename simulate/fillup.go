package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// Job is a pod with its times.
type Job struct {
	Pod *corev1.Pod // on no node
	// Created is when the pod comes, and Lifetime how long it then runs; 0 is for ever.
	Created, Lifetime time.Duration
}

// World is what pods are played against.
type World struct {
	Nodes []*corev1.Node
	// Running are pods that are on a node at the beginning; they stay.
	Running   []*corev1.Pod
	Scheduler Scheduler
	Extender  Extender
	// Resource is what allocation is measured in.
	Resource corev1.ResourceName
	// Pending are pods that wait at the beginning: they come before all others, once each.
	Pending []Job
	// Known are pods that have come, and gone again, before: what policies may learn
	// from at the beginning.
	Known []Job
}

// start is the time at which every simulation begins.
var start = time.Unix(0, 0).UTC()

// What a seed decides is drawn from streams of their own, so that the same pods come,
// whatever is drawn for them.
const (
	orderStream = iota // the order in which pods fill a cluster up
	loadStream         // arrivals of pods that come and go
	tieStream          // which of equal nodes are taken; Scheduler.Ties counts on from here
)

func (w *World) begin(seed uint64) *run {
	r := &run{
		cluster: newCluster(w.Nodes, w.Running, w.Extender.Ignored, start), scheduler: w.Scheduler, extender: w.Extender,
		random: rand.New(rand.NewPCG(seed, tieStream+w.Scheduler.Ties)),
	}
	for i, j := range w.Known {
		pod := instance(j.Pod, fmt.Sprintf("known-%d", i), start)
		r.arrive(pod)
		r.builder.DeletePod(pod.UID)
	}
	return r
}

// instance is a pod like the given one, with an identity of its own.
func instance(like *corev1.Pod, suffix string, created time.Time) *corev1.Pod {
	pod := *like // shallow: neither is written to
	pod.Name = like.Name + "-" + suffix
	pod.UID = types.UID(pod.Namespace + "/" + pod.Name)
	pod.ResourceVersion = "1"
	pod.CreationTimestamp = metav1.NewTime(created)
	pod.Spec.SchedulingGates = nil // it comes when they are removed
	return &pod
}

// demand is what the pod asks for of the resource.
func demand(pod *corev1.Pod, name corev1.ResourceName) int64 {
	quantity := snapshot.PodRequests(pod)[name]
	return amount(name, quantity.MilliValue(), quantity.Value())
}

// Capacity is how much of the resource there is: CPU in thousandths, all else in whole units.
func (w *World) Capacity() int64 {
	sum := int64(0)
	for _, n := range w.Nodes {
		quantity := n.Status.Allocatable[w.Resource]
		sum += amount(w.Resource, quantity.MilliValue(), quantity.Value())
	}
	return sum
}

// Filled is how a cluster filled up. All shares are of what there is of the resource.
type Filled struct {
	// Curve is what was allocated, by what had arrived.
	Curve []Point
	// FirstRejected is what had arrived when a pod that asks for the resource fitted
	// nowhere for the first time; 0 if none was rejected.
	FirstRejected float64
	// GPUs is what is used of each unit handed out, in order of node and unit, 0..1.
	GPUs []float64
	// Rejected is how many pods fitted nowhere, of Pods.
	Rejected, Pods int
}

// Point is one of a curve.
type Point struct{ Arrived, Allocated float64 }

// At is what was allocated when so much had arrived, or at the end if that is sooner.
func (f *Filled) At(arrived float64) float64 {
	for i, p := range f.Curve {
		if p.Arrived < arrived {
			continue
		}
		if i == 0 {
			return p.Allocated
		}
		before := f.Curve[i-1]
		return before.Allocated + (p.Allocated-before.Allocated)*(arrived-before.Arrived)/(p.Arrived-before.Arrived)
	}
	return f.Curve[len(f.Curve)-1].Allocated
}

// curveSteps is how many points there are of a curve for each time the capacity arrives.
const curveSteps = 200

// Order returns the pods that fill a cluster up by the protocol of the FGD paper, in the
// order in which they come, one each second: those that are pending, then those of the jobs,
// each in an order that the seed decides, then others like the jobs chosen at random, until as
// much of the resource has arrived as until says, in parts of the capacity. Each has a name
// and a UID of its own.
func (w *World) Order(jobs []Job, seed uint64, until float64) ([]*corev1.Pod, error) {
	capacity := w.Capacity()
	if capacity <= 0 {
		return nil, fmt.Errorf("no node has any %s", w.Resource)
	}
	if asked(jobs, w.Resource) <= 0 {
		return nil, fmt.Errorf("no pod asks for %s", w.Resource)
	}
	random := rand.New(rand.NewPCG(seed, orderStream))
	first := shuffled(random, w.Pending)
	first = append(first, shuffled(random, jobs)...)
	var pods []*corev1.Pod
	for arrived := int64(0); float64(arrived) < until*float64(capacity); {
		i, like := len(pods), (*corev1.Pod)(nil)
		if i < len(first) {
			like = first[i].Pod
		} else {
			like = jobs[random.IntN(len(jobs))].Pod
		}
		pod := instance(like, fmt.Sprint(i), start.Add(time.Duration(i+1)*time.Second))
		pods = append(pods, pod)
		arrived += demand(pod, w.Resource)
	}
	return pods, nil
}

// asked is what the jobs ask for together.
func asked(jobs []Job, name corev1.ResourceName) int64 {
	sum := int64(0)
	for _, j := range jobs {
		sum += demand(j.Pod, name)
	}
	return sum
}

func shuffled(random *rand.Rand, jobs []Job) []Job {
	if len(jobs) == 0 {
		return nil // and nothing is drawn
	}
	all := make([]Job, len(jobs))
	for i, which := range random.Perm(len(jobs)) {
		all[i] = jobs[which]
	}
	return all
}

// FillUp plays the pods of Order. Each is tried once, and stays. progress is called now
// and then with the part that is done, and may be nil.
func (w *World) FillUp(ctx context.Context, jobs []Job, seed uint64, until float64, progress func(float64)) (*Filled, error) {
	pods, err := w.Order(jobs, seed, until)
	if err != nil {
		return nil, err
	}
	r := w.begin(seed)
	capacity := w.Capacity()
	arrived, allocated := int64(0), int64(0)
	for _, pod := range w.Running {
		held := snapshot.PodRequests(pod)[w.Resource]
		allocated += amount(w.Resource, held.MilliValue(), held.Value())
	}
	f := &Filled{Curve: []Point{{0, float64(allocated) / float64(capacity)}}, Pods: len(pods)}
	for _, pod := range pods {
		r.now = pod.CreationTimestamp.Time
		asked := demand(pod, w.Resource)
		arrived += asked
		r.arrive(pod)
		switch err := r.schedule(ctx, pod); {
		case err == nil:
			allocated += asked
		case errors.Is(err, errNowhere):
			r.builder.DeletePod(pod.UID)
			f.Rejected++
			if asked > 0 && f.FirstRejected == 0 {
				f.FirstRejected = float64(arrived) / float64(capacity)
			}
		default:
			return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		at := Point{float64(arrived) / float64(capacity), float64(allocated) / float64(capacity)}
		if at.Arrived-f.Curve[len(f.Curve)-1].Arrived >= 1.0/curveSteps {
			f.Curve = append(f.Curve, at)
			if progress != nil {
				progress(at.Arrived / until)
			}
		}
	}
	if last := (Point{float64(arrived) / float64(capacity), float64(allocated) / float64(capacity)}); last.Arrived > f.Curve[len(f.Curve)-1].Arrived {
		f.Curve = append(f.Curve, last)
	}
	f.GPUs = r.units()
	return f, nil
}

// units is what is used of every unit of every node with a ledger, 0..1, and 0 for
// each GPU of a node from which nobody has got anything.
func (r *run) units() []float64 {
	var used []float64
	for _, n := range r.nodes {
		if len(r.builder.View().Node(n.object.Name).Ledgers) == 0 {
			gpus := n.object.Status.Capacity[gpuCount]
			used = append(used, make([]float64, max(0, min(snapshot.MaxLedgerUnits, gpus.Value())))...)
		}
		for _, l := range r.builder.View().Node(n.object.Name).Ledgers {
			for i := range l.Units {
				used = append(used, math.Min(1, float64(l.Units[i].Used())/float64(max(1, l.Units[i].Capacity))))
			}
		}
	}
	return used
}

// HowMany returns how many pods like the given one fit, one after the other, and at
// most so many.
func (w *World) HowMany(ctx context.Context, like *corev1.Pod, most int, seed uint64) (int, error) {
	r := w.begin(seed)
	for i := range most {
		r.now = r.now.Add(time.Second)
		pod := instance(like, fmt.Sprint(i), r.now)
		r.arrive(pod)
		switch err := r.schedule(ctx, pod); {
		case errors.Is(err, errNowhere):
			return i, nil
		case err != nil:
			return i, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
	}
	return most, nil
}

// Next returns the pod as it would be bound if it came now, or an error if it fits
// nowhere.
func (w *World) Next(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	r := w.begin(0)
	next := instance(pod, "next", start)
	r.arrive(next)
	if err := r.schedule(ctx, next); err != nil {
		return nil, err
	}
	return r.builder.Pod(next.UID), nil
}
