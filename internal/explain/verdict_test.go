package explain_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/pending"
	"outboard.dev/outboard/snapshot"
)

const gpuMemory = "aliyun.com/gpu-mem"

// A pod fits on the nodes that all profiles accept which place it, and so does a change.
func TestProfilesTogether(t *testing.T) {
	var b snapshot.Builder
	for name, sizes := range map[string][2]string{"n1": {"10", "1"}, "n2": {"1", "10"}} {
		b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"GPU": sizes[0], "Disk": sizes[1]}, UID: types.UID(name)},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}}})
	}
	b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3", Labels: map[string]string{"GPU": "10", "Disk": "10"}}, Spec: corev1.NodeSpec{Unschedulable: true},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}}})
	view := b.View()
	gpu, disk := engines(t, "GPU")()["/"], engines(t, "Disk")()["/"]
	for name, tt := range map[string]struct {
		engines         map[string]*engine.Engine
		refused         string
		verdict, change string
		fit             int
	}{
		"one":       {map[string]*engine.Engine{"/gpu": gpu}, "", ", and fits on 1 of 3 nodes now, by Outboard's policies.", "on 1 of 3 nodes now, by Outboard's policies", 1},
		"no node":   {map[string]*engine.Engine{"/gpu": gpu, "/": disk}, "", ", and fits on 0 of 3 nodes: 1 rejected by Disk, 1 rejected by GPU, 1 rejected by kube-scheduler.", "on node n3 if that were not cordoned", 0},
		"another's": {map[string]*engine.Engine{"/gpu": gpu, "/": disk}, "/", ", and fits on 1 of 3 nodes now, by Outboard's policies.", "on 1 of 3 nodes now, by Outboard's policies", 1},
		"meant":     {map[string]*engine.Engine{"/meant": gpu, "/": disk}, "/meant", ", and fits on 0 of 3 nodes: 1 rejected by Disk, 1 rejected by GPU, 1 rejected by kube-scheduler.", "on node n3 if that were not cordoned", 0},
	} {
		doc, text := show(t, explain.Source{
			Log: decision.NewLog(1), Engines: func() map[string]*engine.Engine { return tt.engines }, View: func(types.UID) *snapshot.View { return view }, Pod: unbound(corev1.PodSpec{}),
			Reason: func(*snapshot.View, *corev1.Pod) (pending.Reason, bool) {
				return pending.Reason{Unserved: "/meant"}, false
			},
			Refuses: func(profile string, pod *corev1.Pod) error {
				if profile == tt.refused {
					return context.Canceled
				}
				return nil
			},
		}, url.Values{"pod": {"p"}})
		first, _, _ := strings.Cut(text, "\n")
		if want := "Pod default/p waits" + tt.verdict; first != want || doc.Verdict != want || doc.Change != tt.change || doc.Fits.Fit != tt.fit {
			t.Errorf("%s: %q, %+v, want\n%q, %q\n%s", name, doc.Change, doc.Fits, want, tt.change, text)
		}
	}
}

// A wrong amount or name of a resource is the first that is said about what would help.
func TestHints(t *testing.T) {
	var b snapshot.Builder
	list := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10"), gpuMemory: resource.MustParse("32"), "aliyun.com/gpu-count": resource.MustParse("2")}
	capacity := list.DeepCopy()
	list["example.com/down"], capacity["example.com/down"] = resource.MustParse("0"), resource.MustParse("4")
	b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: list, Capacity: capacity}})
	view := b.View()
	gpus := known("profiles: [{policies: [{type: GPUMemory}]}]").Config().Profiles[0].Policies[0]
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "GPUMemory", Policy: gpus.Policy, Weight: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		resource corev1.ResourceName
		amount   string
		change   string
	}{
		"suffix":     {gpuMemory, "8Gi", "aliyun.com/gpu-mem: 8Gi is 8589934592 units: write 8 for 8 GiB"},
		"decimal":    {gpuMemory, "8G", "aliyun.com/gpu-mem: 8G is 8000000000 units: write a number of GiB without a suffix"},
		"MiB":        {gpuMemory, "8192", "aliyun.com/gpu-mem: 8192 is 8192 GiB: write 8 if you mean 8192 MiB"},
		"written 8k": {gpuMemory, "8000", "aliyun.com/gpu-mem: 8000 is 8000 GiB: write 8 if you mean 8000 MiB"},
		"both":       {"example.com/down", "8G", "example.com/down: 8G is 8000000000 units: write a number without a suffix"},
		"down":       {"example.com/down", "1", "the device plugin of n does not run: example.com/down has allocatable 0"},
		"misspelled": {"aliyun.com/gpu-memo", "8", "no node reports aliyun.com/gpu-memo; did you mean aliyun.com/gpu-mem (nodes: 1)?"},
		"unknown":    {"example.com/fpga", "1", "no node reports example.com/fpga"},
		"too much":   {gpuMemory, "20", "with 16 GiB of aliyun.com/gpu-mem instead of 20 GiB, on n (with 17 GiB it would not)"},
		"right":      {gpuMemory, "8", "on 1 of 1 nodes now, by Outboard's policies"},
	} {
		amounts := corev1.ResourceList{tt.resource: resource.MustParse(tt.amount)}
		doc, text := show(t, explain.Source{
			Log: decision.NewLog(1), Engines: func() map[string]*engine.Engine { return map[string]*engine.Engine{"/": e} }, View: func(types.UID) *snapshot.View { return view },
			Pod: unbound(corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Limits: amounts, Requests: amounts}}}}),
		}, url.Values{"pod": {"p"}})
		if doc.Change != tt.change || len(doc.Hints) > 0 && !strings.Contains(text, doc.Hints[0]) {
			t.Errorf("%s: %q, want %q\n%s", name, doc.Change, tt.change, text)
		}
	}
}
