package standard_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// largePods are nearly as large as a pod to place may be, each because of a field that policies read.
func largePods(t *testing.T) map[string]*corev1.Pod {
	pods := map[string]*corev1.Pod{}
	for name, extend := range map[string]func(pod *corev1.Pod, i int){
		"labels": func(pod *corev1.Pod, i int) { pod.Labels[fmt.Sprintf("label-%d", i)] = "x" },
		"GPU models": func(pod *corev1.Pod, i int) {
			const key = "outboard.dev/gpu-models"
			pod.Annotations = map[string]string{key: strings.TrimPrefix(fmt.Sprintf("%s,model%04x", pod.Annotations[key], i), ",")}
		},
		"images": func(pod *corev1.Pod, i int) {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: fmt.Sprintf("image-%d", i)})
		},
		"resources": func(pod *corev1.Pod, i int) {
			pod.Spec.Containers[0].Resources.Requests[corev1.ResourceName(fmt.Sprintf("example.com/r%d", i))] = resource.MustParse("1")
		},
	} {
		pod := busyPod(2)
		for i := 0; snapshot.PodSize(pod) < snapshot.MaxPod-1<<10; i++ {
			extend(pod, i)
		}
		if size := snapshot.PodSize(pod); size > snapshot.MaxPod {
			t.Fatalf("the pod with many %s takes %d bytes", name, size)
		}
		pods[name] = pod
	}
	return pods
}

// The filter and the prioritize call about the largest pods that are placed, and all nodes of a large
// cluster together take less processor time than kube-scheduler's timeout for one call.
func TestLargePodsAreJudgedInTime(t *testing.T) {
	const httpTimeout = 3 * time.Second
	c := loadAll(t)
	view := busyView(c, 10_000)
	for n := range view.All() {
		n.Object.Labels["nvidia.com/gpu.product"] = "modelffff"
	}
	for name, pod := range largePods(t) {
		e, err := engine.New(engine.Options{Policies: members(c), Clock: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		var result engine.Result
		req := engine.Request{Pod: busyPod(1), View: view, Nodes: slices.Collect(view.All())}
		if err := errors.Join(e.Filter(t.Context(), req, &result), e.Score(t.Context(), req, &result)); err != nil {
			t.Fatal(err) // fills the caches of the nodes
		}
		req.Pod = pod
		began := processorTime(t)
		if err := e.Filter(t.Context(), req, &result); err != nil {
			t.Fatal(err)
		}
		filters := result.Record.Policies
		if err := e.Score(t.Context(), req, &result); err != nil {
			t.Fatal(err)
		}
		if took := processorTime(t) - began; took > httpTimeout {
			t.Errorf("the calls about a pod with many %s took %v: filter %+v, prioritize %+v", name, took, filters, result.Record.Policies)
		}
	}
}

// processorTime returns what this process has used, so that other processes do not matter.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
