package simulate

import (
	"math"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy"
)

// One GPU. The measurement begins at 100 s: a pod has the GPU until 200 s, a pod that comes at 120 s waits until then, and a pod
// that comes at 390 s waits until the end at 400 s.
func TestReplayByHand(t *testing.T) {
	w := world(t, machines(1, 1), policy.BinPack)
	at := func(created, lifetime time.Duration, units int) Job {
		j := job("p", units, lifetime*time.Second)
		j.Created = created * time.Second
		return j
	}
	jobs := []Job{at(390, 50, 16), at(0, 200, 16), at(120, 250, 12), at(130, 10, 4), at(500, 1, 16)}
	r, err := w.Replay(t.Context(), jobs, 1, 400*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Replayed{
		Pods: 3, Delayed: 3, Waiting: 1,
		// 120 s: 80 s, 130 s: 70 s, 390 s: 10 s so far.
		Waited: 160 * time.Second / 3,
		// Of 16: 16 from 100, 28 from 120, 32 from 130, 16 from 200 (12 and 4), 12 from 210, and 28 from 390.
		Requested: (20*16 + 10*28 + 70*32 + 10*16 + 180*12 + 10*28) / 16.0 / 300,
		// Everything that was possible, except for the last 10 s, when pods use 12 and 16 are waiting.
		Served: (290 + 10*12/16.0) / 300,
	}
	if math.Abs(r.Requested-want.Requested) > 1e-9 || math.Abs(r.Served-want.Served) > 1e-9 {
		t.Errorf("requested %v, served %v; want %v, %v", r.Requested, r.Served, want.Requested, want.Served)
	}
	want.Requested, want.Served = r.Requested, r.Served
	if *r != want {
		t.Errorf("%+v, want %+v", *r, want)
	}
}

// A pod that is nominated to a node, and waits for CPU, gets the GPU that other pods have left free for it: filter leaves it
// free, and allocations must leave it free, too.
func TestReplayLeavesTheGPUOfANominatedPod(t *testing.T) {
	w := world(t, machines(1, 2), policy.BinPack)
	config := gpumemory.Defaults()
	config.GPUSelection = policy.Spread
	policy, err := gpumemory.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if w.Extenders[0].Engine, err = engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "GPUMemory", Policy: policy, Weight: 1}}}); err != nil {
		t.Fatal(err)
	}
	at := func(created int, j Job) Job {
		j.Created = time.Duration(created) * time.Second
		return j
	}
	busy, nominated := job("busy", 0, 100*time.Second), job("nominated", 16, 0)
	busy.Pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("28")
	nominated.Pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("8")
	nominated.Pod.Status.NominatedNodeName = "n00"
	nominated.Pod.Spec.Priority = new(int32(1000))
	jobs := []Job{at(0, busy), at(10, nominated), at(20, job("a", 8, 0)), at(30, job("b", 8, 0))}
	r, err := w.Replay(t.Context(), jobs, 1, 200*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Waiting != 0 {
		t.Errorf("%d pods wait: a and b have the GPU of the nominated pod", r.Waiting)
	}
}

func TestArrivals(t *testing.T) {
	w := world(t, machines(10, 4), policy.BinPack)
	jobs := []Job{job("a", 8, time.Hour), job("b", 4, 20*time.Hour), job("c", 2, time.Second), job("d", 1, 0)}
	load := Load{Offered: 0.8, For: 1000 * time.Hour, MinLifetime: time.Minute, MaxLifetime: 2 * time.Hour}
	arrivals, err := w.Arrivals(jobs, load, 5)
	if err != nil {
		t.Fatal(err)
	}
	work, last := 0.0, time.Duration(0)
	for _, j := range arrivals {
		work += float64(demand(j.Pod, gpuMemory)) * j.Lifetime.Hours()
		if j.Created < last || j.Created >= load.For || j.Lifetime < time.Minute || j.Lifetime > 2*time.Hour {
			t.Fatalf("got a job that comes at %v, for %v", j.Created, j.Lifetime)
		}
		last = j.Created
	}
	if offered := work / 1000 / (10 * 4 * 16); math.Abs(offered-0.8) > 0.02 {
		t.Errorf("%d jobs offer %v", len(arrivals), offered)
	}
	again, err := w.Arrivals(jobs, load, 5)
	if err != nil || !reflect.DeepEqual(arrivals, again) {
		t.Error("the same seed returns other arrivals")
	}
	for name, load := range map[string]Load{"no load": {For: time.Hour}, "no time": {Offered: 1, MaxLifetime: time.Hour}, "no lifetimes": {Offered: 1, For: time.Hour}} {
		if _, err := w.Arrivals(jobs, load, 1); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Pods that come and go for a long time leave nothing allocated.
func TestReplayInTheLongRun(t *testing.T) {
	w := world(t, machines(6, 4), gpumemory.LeastWaste)
	jobs := []Job{job("a", 3, 2*time.Hour), job("b", 10, time.Hour), job("c", 16, 3*time.Hour), job("none", 0, time.Hour)}
	whole := job("two", 32, time.Hour)
	whole.Pod.Labels = map[string]string{gpuCount: "2"}
	load := Load{Offered: 0.9, For: 100 * time.Hour, MinLifetime: time.Minute, MaxLifetime: 6 * time.Hour}
	arrivals, err := w.Arrivals(append(jobs, whole), load, 9)
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.Replay(t.Context(), arrivals, 9, load.For, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Served < 0.9 || r.Served > 1 || math.Abs(r.Requested-0.9) > 0.15 || r.Delayed == 0 || r.Delayed > r.Pods/2 {
		t.Errorf("%+v", *r)
	}
	twice, err := w.Replay(t.Context(), arrivals, 9, load.For, nil)
	if err != nil || *twice != *r {
		t.Errorf("%+v, and then %+v (%v)", *r, *twice, err)
	}
	empty, err := w.Replay(t.Context(), nil, 9, time.Hour, nil)
	if err != nil || empty.Pods != 0 || empty.Served != 1 {
		t.Errorf("with no pods: %+v (%v)", empty, err)
	}
}
