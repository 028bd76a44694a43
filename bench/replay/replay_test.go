package replay

import (
	"math"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/gpushare"
	"outboard.dev/outboard/internal/simulate"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/test/openb"
)

// oneNode is a cluster of one node, with this many GPUs of 16 units.
func oneNode(t *testing.T, gpus int64) *simulate.World {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}
	n.Status.Capacity = corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("110"),
		gpushare.Memory:     *resource.NewQuantity(16*gpus, resource.DecimalSI),
		gpushare.Count:      *resource.NewQuantity(gpus, resource.DecimalSI),
	}
	n.Status.Allocatable = n.Status.Capacity
	config := gpumemory.Defaults()
	config.ScoringStrategy.Type = policy.BinPack
	p, err := gpumemory.New(config)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "GPUMemory", Policy: p, Weight: 1}}, Shortlist: 1})
	if err != nil {
		t.Fatal(err)
	}
	return &simulate.World{Nodes: []*corev1.Node{n}, Resource: gpushare.Memory, Extenders: []simulate.Extender{{Engine: e, Weight: 1}}}
}

func jobOf(name string, units int64, lifetime time.Duration) openb.Job {
	list := corev1.ResourceList{gpushare.Memory: *resource.NewQuantity(units, resource.DecimalSI)}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}
	return openb.Job{Pod: pod, Lifetime: lifetime}
}

// One GPU. The measurement begins at 100 s: a pod has the GPU until 200 s, a pod that comes at 120 s waits until then, and a pod
// that comes at 390 s waits until the end at 400 s.
func TestReplayByHand(t *testing.T) {
	at := func(created, lifetime time.Duration, units int64) Arrival {
		return Arrival{jobOf("p", units, lifetime*time.Second), created * time.Second}
	}
	jobs := []Arrival{at(390, 50, 16), at(0, 200, 16), at(120, 250, 12), at(130, 10, 4), at(500, 1, 16)}
	r, err := Play(t.Context(), oneNode(t, 1), jobs, 1, 400*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	want := Result{
		Pods: 3, Delayed: 3, Waiting: 1,
		// 120 s: 80 s, 130 s: 70 s, 390 s: 10 s so far.
		Waited: 160 * time.Second / 3,
		// Of 16: 16 from 100, 28 from 120, 32 from 130, 16 from 200 (12 and 4), 12 from 210, and 28 from 390.
		Requested: (20*16 + 10*28 + 70*32 + 10*16 + 180*12 + 10*28) / 16.0 / 300,
		// Everything that was possible, except for the last 10 s, when pods use 12 and 16 are waiting.
		Served: (290 + 10*12/16.0) / 300,
		// 16 until 210, and then 12.
		Allocated: (110*16 + 190*12) / 16.0 / 300,
		Waits:     [len(PodSizes)][]time.Duration{1: {80 * time.Second, 70 * time.Second, 10 * time.Second}},
	}
	if math.Abs(r.Requested-want.Requested) > 1e-9 || math.Abs(r.Served-want.Served) > 1e-9 || math.Abs(r.Allocated-want.Allocated) > 1e-9 {
		t.Errorf("requested %v, served %v, allocated %v; want %v, %v, %v", r.Requested, r.Served, r.Allocated, want.Requested, want.Served, want.Allocated)
	}
	want.Requested, want.Served, want.Allocated = r.Requested, r.Served, r.Allocated
	if !reflect.DeepEqual(*r, want) {
		t.Errorf("%+v, want %+v", *r, want)
	}
}

func TestArrivals(t *testing.T) {
	w := oneNode(t, 40)
	jobs := []openb.Job{jobOf("a", 8, time.Hour), jobOf("b", 4, 20*time.Hour), jobOf("c", 2, time.Second), jobOf("d", 1, 0)}
	l := Load{Offered: 0.8, For: 1000 * time.Hour, MinLifetime: time.Minute, MaxLifetime: 2 * time.Hour}
	all, err := Arrivals(w, jobs, l, 5)
	if err != nil {
		t.Fatal(err)
	}
	work, last := 0.0, time.Duration(0)
	for _, j := range all {
		work += float64(simulate.Demand(j.Pod, w.Resource)) * j.Lifetime.Hours()
		if j.At < last || j.At >= l.For || j.Lifetime < time.Minute || j.Lifetime > 2*time.Hour {
			t.Fatalf("got a job that comes at %v, for %v", j.At, j.Lifetime)
		}
		last = j.At
	}
	if got := work / 1000 / (40 * 16); math.Abs(got-0.8) > 0.02 {
		t.Errorf("%d jobs offer %v", len(all), got)
	}
	again, err := Arrivals(w, jobs, l, 5)
	if err != nil || !reflect.DeepEqual(all, again) {
		t.Error("the same seed returns other arrivals")
	}
}
