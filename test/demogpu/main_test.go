package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/simulate"
	"outboard.dev/outboard/test/measure"
	"outboard.dev/outboard/test/stage"
)

// small is a cluster of 128 GPUs, and pods like those of the trace, of which more request several
// GPUs: these make strategies differ most when they do not fit. With this seed, LeastWaste allocates 8 points more than kube-scheduler's scores,
// and of 2,000 simulations of each arm, none differs from the mean of the first 12 by more than 2.74 points.
func small() trace {
	t := trace{seed: 66, until: 1.3}
	for _, kind := range []struct {
		count, gpus, cpu int
		model            string
	}{{10, 8, 96, "G2"}, {6, 4, 48, "V100"}, {10, 2, 96, "T4"}, {4, 1, 16, "P100"}} {
		for i := range kind.count {
			t.nodes = append(t.nodes, machine(strings.ToLower(fmt.Sprintf("%s-%d", kind.model, i)), kind.gpus, kind.cpu, kind.model))
		}
	}
	for _, kind := range []struct {
		weight, gpus, milli, cpu int
		models                   string
	}{
		{30, 1, 1000, 8, ""}, {40, 1, 460, 4, ""}, {35, 1, 300, 3, ""}, {25, 1, 700, 6, ""}, {20, 1, 550, 5, "T4,P100"}, {25, 1, 100, 1, ""},
		{6, 1, 1000, 6, "V100"}, {7, 2, 1000, 16, ""}, {5, 4, 1000, 32, ""}, {5, 8, 1000, 64, ""}, {30, 0, 0, 4, ""},
	} {
		for range kind.weight {
			t.jobs = append(t.jobs, job(len(t.jobs), kind.gpus, kind.milli, kind.cpu, kind.models))
		}
	}
	return t
}

const units = 1000 // of each GPU

func machine(name string, gpus, cpu int, model string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"nvidia.com/gpu.product": model}}}
	n.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: quantity(cpu), corev1.ResourceMemory: resource.MustParse("512Gi"), corev1.ResourcePods: quantity(1000),
		gpuMemory: quantity(units * gpus), "aliyun.com/gpu-count": quantity(gpus),
	}
	n.Status.Allocatable = n.Status.Capacity
	return n
}

func job(i, gpus, milli, cpu int, models string) simulate.Job {
	asked := corev1.ResourceList{corev1.ResourceCPU: quantity(cpu), corev1.ResourceMemory: resource.MustParse("8Gi")}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "trace", Name: fmt.Sprintf("job-%03d", i)}}
	p.UID = types.UID(p.Name)
	if gpus > 0 {
		asked[gpuMemory] = quantity(gpus * milli)
	}
	if gpus > 1 {
		p.Labels = map[string]string{"aliyun.com/gpu-count": fmt.Sprint(gpus)}
	}
	if models != "" {
		p.Annotations = map[string]string{"outboard.dev/gpu-models": models}
	}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: asked, Limits: asked}}}
	return simulate.Job{Pod: p}
}

func quantity(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

// The simulation predicts the result with the real control plane: if LeastWaste behaves as kube-scheduler's scores, or the other way round, the
// result is outside the tolerance. The tolerance is above what chance does in the simulation.
func TestDemoGPU(t *testing.T) {
	binary, err := stage.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range arms {
		t.Run(arms[i].name, func(t *testing.T) {
			t.Parallel() // most of the time, kube-scheduler waits before it retries pods
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			o := options{trace: small(), arms: arms[i : i+1], binary: binary, draws: 12, tolerance: 3}
			var out, progress bytes.Buffer
			err := o.run(ctx, &out, &progress)
			t.Logf("%s%s", &progress, &out)
			if err != nil {
				t.Error(err)
			}
			if !strings.Contains(out.String(), "\n"+arms[i].name+" ") {
				t.Errorf("there is no line for %s", arms[i].name)
			}
		})
	}
}

// With ResourceClaims, the simulation predicts the result, and the package firstfit the devices. kube-scheduler counts the capacity that a claim
// consumes twice for a moment, while it finishes writing the claim: then it takes another device.
func TestDemoClaims(t *testing.T) {
	binary, err := stage.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range claimArms {
		t.Run(claimArms[i].name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			o := options{trace: small(), arms: claimArms[i : i+1], binary: binary, draws: 6, tolerance: 3}
			if err := o.useClaims(); err != nil {
				t.Fatal(err)
			}
			pods, err := o.order()
			if err != nil {
				t.Fatal(err)
			}
			var progress bytes.Buffer
			m, err := o.play(ctx, &o.arms[0], pods, &progress)
			if err != nil {
				t.Fatal(err)
			}
			predicted, err := o.predict(ctx, &o.arms[0])
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err = o.report([]result{{predicted, m}}, &out)
			t.Logf("%s%s", &progress, &out)
			if err != nil {
				t.Error(err)
			}
			if c := m.claims; c.claims < 100 || len(c.different) > c.claims/20 {
				t.Errorf("of %d claims, %d were predicted", c.claims, c.predicted)
			}
		})
	}
}

// Partitions and shares, one after the other, are placed as in the simulation.
func TestPartitions(t *testing.T) {
	binary, err := stage.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	o, out := options{trace: trace{seed: 1}, binary: binary}, bytes.Buffer{}
	if err := o.comparePartitions(ctx, 72, &out, io.Discard); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
}

func named(name string, asked int64) *corev1.Pod {
	p := job(0, 1, int(asked), 1, "").Pod
	p.Name = name
	return p
}

func bound(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.Spec.NodeName = "somewhere"
	return p
}

func refused(p *corev1.Pod, reason string) *corev1.Pod {
	p = p.DeepCopy()
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason}}
	return p
}

// A pod has been tried when it is bound, or when kube-scheduler has found no node for it, and not
// after an attempt that ended in an error.
func TestTally(t *testing.T) {
	none, a, b, c := named("none", 0), named("a", 100), named("b", 200), named("c", 400)
	tally := newTally([]*corev1.Pod{none, a, b, c}, 1000)
	for i, step := range []struct {
		pod              *corev1.Pod
		onNodes, untried int
		late             float64
	}{
		{named("stranger", 5), 0, 4, 0},
		{refused(none, corev1.PodReasonUnschedulable), 0, 3, 0},
		{refused(b, "SchedulerError"), 0, 3, 0},
		{bound(a), 1, 2, 0},
		{bound(a), 1, 2, 0},
		{refused(b, corev1.PodReasonUnschedulable), 1, 1, 0},
		{refused(c, corev1.PodReasonUnschedulable), 1, 0, 0},
		{bound(c), 2, 0, 40},
	} {
		tally.see(step.pod)
		if onNodes, untried := tally.progress(); onNodes != step.onNodes || untried != step.untried || tally.lateShare() != step.late {
			t.Errorf("step %d: %d on nodes, %d untried, %v %% late, want %+v", i, onNodes, untried, tally.lateShare(), step)
		}
	}
	// b is the first that requests GPUs: with it, the requests sum to 300.
	if first, any := tally.first(); first != 30 || !any {
		t.Errorf("the first was rejected at %v (%v)", first, any)
	}
	if got, want := tally.String(), "    0 created,     2 bound,    2 rejected, 50.00 % of the GPUs allocated"; got != want {
		t.Errorf("the failure is %q, want %q", got, want)
	}
}

// A pod that was rejected at first was placed after all others.
func TestTurn(t *testing.T) {
	a, b, c := named("a", 100), named("b", 200), named("c", 400)
	tally := newTally([]*corev1.Pod{a, b, c}, 500)
	for _, pod := range []*corev1.Pod{refused(a, corev1.PodReasonUnschedulable), bound(c), bound(b), bound(a)} {
		tally.see(pod)
	}
	if tally.turn("b") >= tally.turn("c") || tally.turn("c") >= tally.turn("a") {
		t.Errorf("the turns are %d, %d and %d", tally.turn("a"), tally.turn("b"), tally.turn("c"))
	}
	if curve := tally.curve(); curve != [len(loads)]float64{140, 140, 140, 140, 140, 140, 140} {
		t.Errorf("the curve is %v", curve)
	}
}

func TestFailures(t *testing.T) {
	log := "no JSON\n" + `{"msg":"serving"}
{"msg":"call failed","verb":"bind","error":"node a: policy GPUMemory: no room"}
{"msg":"call failed","verb":"bind","error":"node b: policy GPUMemory: no room"}
{"msg":"call failed","verb":"filter","error":"too early"}
`
	if got, want := fmt.Sprint(failures(log)), "map[no room:2 too early:1]"; got != want {
		t.Errorf("counted %s, want %s", got, want)
	}
}

// An unacceptable result is an error.
func TestReport(t *testing.T) {
	predicted := prediction{allocated: measure.Figures{95, 95.2, 95.4}}
	for _, tt := range []struct {
		name      string
		measured  measurement
		tolerance float64
		want      string // of the error; "": none
	}{
		{"as predicted", measurement{allocated: 95.7}, 0.5, ""},
		{"more than tolerated, less than by chance", measurement{allocated: 94.7}, 0.1, ""},
		{"too little", measurement{allocated: 94.5}, 0.5, "-0.70 points"},
		{"too much", measurement{allocated: 96}, 0.5, "+0.80 points"},
		{"overallocated", measurement{allocated: 95.2, audit: "GPU 0 is overallocated"}, 0.5, "the audit has findings:\nGPU 0 is overallocated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options{arms: []arm{{name: "an arm"}}, tolerance: tt.tolerance}
			var out bytes.Buffer
			err := o.report([]result{{predicted, tt.measured}}, &out)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q", err, tt.want)
			}
			if !strings.Contains(out.String(), "95.20±0.20") || strings.Contains(out.String(), "FAILED") != (tt.measured.audit != "") {
				t.Errorf("the table is\n%s", &out)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	var o options
	if err := o.read(t.TempDir(), 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a trace: %v", err)
	}
	if err := o.run(t.Context(), io.Discard, io.Discard); err == nil {
		t.Error("zero draws cause no error")
	}
}
