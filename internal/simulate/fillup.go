package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/gpushare"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// World is a cluster with its scheduler, before a simulation.
type World struct {
	Nodes []*corev1.Node
	// Devices are what the nodes and pods have of Dynamic Resource Allocation.
	Devices Devices
	// Running are pods that are bound at the start; they stay.
	Running   []*corev1.Pod
	Scheduler Scheduler
	// Extenders are in the order in which kube-scheduler calls them.
	Extenders []Extender
	// Resource is the resource whose allocation is measured.
	Resource corev1.ResourceName
	// Allocators are policies that allocate Resource. A node then has no more of it than each of
	// them can allocate there: what a node reports may be more, such as the memory of the largest
	// GPU for each GPU.
	Allocators []policy.Reserver
	// Pending are pods that are pending at the start: they come before all others, once each.
	Pending []*corev1.Pod
	// Known are pods that came and ended before the start. Policies may learn from them.
	Known []*corev1.Pod
	// Bound is called with each pod that a simulation binds, as it is on its node, one after the
	// other; nil: not called.
	Bound func(*corev1.Pod)
}

// start is the time at which every simulation starts.
var start = time.Unix(0, 0).UTC()

// Each use of a seed has a stream of its own, so that the same pods come whatever is drawn from
// other streams.
const (
	orderStream = 0 // the order in which pods fill a cluster up
	tieStream   = 2 // which of several equal nodes is chosen; Scheduler.Ties adds to this
)

// Begin returns a simulation whose caller decides which pods arrive and end, and when.
func (w *World) Begin(seed uint64) *Run {
	r := &Run{
		cluster: newCluster(w.Nodes, w.Running, &w.Devices, w.Scheduler.Ignored, start), scheduler: w.Scheduler, extenders: w.Extenders,
		onBound: w.Bound, random: rand.New(rand.NewPCG(seed, tieStream+w.Scheduler.Ties)),
	}
	for i, like := range w.Known {
		r.leave(r.Arrive(like, fmt.Sprintf("known-%d", i), 0))
	}
	return r
}

// Arrive adds a copy of the pod with its own name and UID, which comes at the time after the start.
func (r *Run) Arrive(like *corev1.Pod, suffix string, at time.Duration) *corev1.Pod {
	r.now = start.Add(at)
	pod := instance(like, like.Name+"-"+suffix, r.now)
	r.arrive(pod)
	return pod
}

// End removes a pod that is on a node at the time after the start.
func (r *Run) End(uid types.UID, at time.Duration) {
	r.now = start.Add(at)
	r.remove(uid)
}

// instance returns a copy of the pod with the name and a UID of its own.
func instance(like *corev1.Pod, name string, created time.Time) *corev1.Pod {
	pod := *like // shallow: shared parts are not changed
	pod.Name = name
	pod.UID = types.UID(pod.Namespace + "/" + pod.Name)
	pod.ResourceVersion = "1"
	pod.CreationTimestamp = metav1.NewTime(created)
	pod.Spec.SchedulingGates = nil         // it comes when they are removed
	pod.Status.ResourceClaimStatuses = nil // it has claims of its own
	return &pod
}

// Demand returns what the pod requests of the resource.
func Demand(pod *corev1.Pod, name corev1.ResourceName) int64 {
	quantity := snapshot.PodRequests(pod)[name]
	return amount(name, quantity.MilliValue(), quantity.Value())
}

// Capacity returns how much of the resource can be allocated on the nodes: CPU in thousandths, all
// else in whole units.
func (w *World) Capacity() int64 {
	sum := int64(0)
	for _, n := range w.Nodes {
		quantity := n.Status.Allocatable[w.Resource]
		capacity := amount(w.Resource, quantity.MilliValue(), quantity.Value())
		for _, allocator := range w.Allocators {
			if units, ok := unitsOf(allocator, n, w.Resource); ok {
				capacity = min(capacity, units)
			}
		}
		sum += capacity
	}
	return sum
}

// AllocatesUnits reports whether a policy allocates the resource on a node in units, such as GPUs.
// Otherwise a pod fits if the node has enough of it in total.
func (w *World) AllocatesUnits() bool {
	for _, n := range w.Nodes {
		for _, allocator := range w.Allocators {
			if _, ok := unitsOf(allocator, n, w.Resource); ok {
				return true
			}
		}
	}
	return false
}

// unitsOf returns how much of the resource the policy can allocate on an empty node; ok is false if
// it does not allocate the resource there.
func unitsOf(allocator policy.Reserver, object *corev1.Node, name corev1.ResourceName) (sum int64, ok bool) {
	one := corev1.ResourceList{name: *resource.NewQuantity(1, resource.DecimalSI)}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: one, Limits: one}}}}}
	var builder snapshot.Builder
	builder.SetNode(object)
	view := builder.View()
	node := view.Node(object.Name)
	keys, err := allocator.Ledgers(pod, node)
	if err != nil {
		return 0, false
	}
	for _, key := range keys {
		if key != (snapshot.LedgerKey{Resource: string(name), Node: object.Name}) {
			continue
		}
		claim, verdict := allocator.Reserve(policy.ReserveRequest{
			Pod: pod, Node: node, View: view, Ledger: &snapshot.Ledger{Resource: key.Resource, Node: key.Node}, At: start,
		})
		if !verdict.Fits() {
			return 0, false
		}
		for _, unit := range claim.Units {
			sum += unit.Capacity
		}
		return sum, true
	}
	return 0, false
}

// Filled is the result of filling up a cluster. All shares are relative to the capacity for the
// resource.
type Filled struct {
	// Curve is what was allocated, by what had arrived.
	Curve []Point
	// FirstRejected is what had arrived when a pod that requests the resource first fit on no node;
	// 0 if none was rejected.
	FirstRejected float64
	// GPUs is the used share of each allocatable unit, 0..1, in order of node and unit.
	GPUs []float64
	// Rejected is how many of Pods fit on no node.
	Rejected, Pods int
}

// Point is a point of a curve.
type Point struct{ Arrived, Allocated float64 }

// At returns what was allocated when arrived had arrived, or at the end if less arrived.
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

// curveSteps is how many points a curve has for each time that the capacity arrives.
const curveSteps = 200

// Order returns the pods that fill a cluster up by the protocol of the FGD paper, in the order in
// which they come, one each second: the pending ones, then those of the mix, both shuffled by the
// seed, then copies of random pods of the mix, until the pods request until times the capacity. Each
// has a unique name and UID.
func (w *World) Order(mix []*corev1.Pod, seed uint64, until float64) ([]*corev1.Pod, error) {
	capacity := w.Capacity()
	if capacity <= 0 {
		return nil, fmt.Errorf("no node has any %s", w.Resource)
	}
	if requested(mix, w.Resource) <= 0 {
		return nil, fmt.Errorf("no pod requests %s", w.Resource)
	}
	random := rand.New(rand.NewPCG(seed, orderStream))
	first := shuffled(random, w.Pending)
	first = append(first, shuffled(random, mix)...)
	var pods []*corev1.Pod
	for arrived := int64(0); float64(arrived) < until*float64(capacity); {
		i, like := len(pods), (*corev1.Pod)(nil)
		if i < len(first) {
			like = first[i]
		} else {
			like = mix[random.IntN(len(mix))]
		}
		pod := instance(like, fmt.Sprintf("%s-%d", like.Name, i), start.Add(time.Duration(i+1)*time.Second))
		pods = append(pods, pod)
		arrived += Demand(pod, w.Resource)
	}
	return pods, nil
}

// requested returns the sum of the requests of all pods.
func requested(pods []*corev1.Pod, name corev1.ResourceName) int64 {
	sum := int64(0)
	for _, pod := range pods {
		sum += Demand(pod, name)
	}
	return sum
}

func shuffled(random *rand.Rand, pods []*corev1.Pod) []*corev1.Pod {
	if len(pods) == 0 {
		return nil // and draw nothing
	}
	all := make([]*corev1.Pod, len(pods))
	for i, which := range random.Perm(len(pods)) {
		all[i] = pods[which]
	}
	return all
}

// FillUp schedules the pods of Order. Each is tried once, and stays.
func (w *World) FillUp(ctx context.Context, mix []*corev1.Pod, seed uint64, until float64) (*Filled, error) {
	pods, err := w.Order(mix, seed, until)
	if err != nil {
		return nil, err
	}
	r := w.Begin(seed)
	capacity := w.Capacity()
	arrived, allocated := int64(0), int64(0)
	for _, pod := range w.Running {
		allocated += Demand(pod, w.Resource)
	}
	f := &Filled{Curve: []Point{{0, float64(allocated) / float64(capacity)}}, Pods: len(pods)}
	for _, pod := range pods {
		r.now = pod.CreationTimestamp.Time
		requested := Demand(pod, w.Resource)
		arrived += requested
		r.arrive(pod)
		switch err := r.Schedule(ctx, pod); {
		case err == nil:
			allocated += requested
		case errors.Is(err, ErrNowhere):
			r.leave(pod)
			f.Rejected++
			if requested > 0 && f.FirstRejected == 0 {
				f.FirstRejected = float64(arrived) / float64(capacity)
			}
		default:
			return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		at := Point{float64(arrived) / float64(capacity), float64(allocated) / float64(capacity)}
		if at.Arrived-f.Curve[len(f.Curve)-1].Arrived >= 1.0/curveSteps {
			f.Curve = append(f.Curve, at)
		}
	}
	if last := (Point{float64(arrived) / float64(capacity), float64(allocated) / float64(capacity)}); last.Arrived > f.Curve[len(f.Curve)-1].Arrived {
		f.Curve = append(f.Curve, last)
	}
	f.GPUs = r.units()
	return f, nil
}

// units returns the used share, 0..1, of every unit of every node with a ledger, and 0 for each GPU
// of a node without claims.
func (r *Run) units() []float64 {
	var used []float64
	for _, n := range r.nodes {
		if len(r.builder.View().Node(n.object.Name).Ledgers) == 0 {
			gpus := n.object.Status.Capacity[gpushare.Count]
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

// HowMany returns how many pods like the given one fit, one after the other, up to most, and why
// the next one does not fit.
func (w *World) HowMany(ctx context.Context, like *corev1.Pod, most int, seed uint64) (int, []Reason, error) {
	r := w.Begin(seed)
	for i := range most {
		pod := r.Arrive(like, fmt.Sprint(i), time.Duration(i+1)*time.Second)
		switch err := r.Schedule(ctx, pod); {
		case errors.Is(err, ErrNowhere):
			return i, r.reasons(pod), nil
		case err != nil:
			return i, nil, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
	}
	return most, nil, nil
}
