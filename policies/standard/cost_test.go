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
)

// largePods have about the largest size that the API server accepts, each in a field that policies
// read.
func largePods() map[string]*corev1.Pod {
	labels, models, images, resources := busyPod(2), busyPod(2), busyPod(2), busyPod(2)
	for i := range 20_000 {
		labels.Labels[fmt.Sprintf("label-%d", i)] = "x"
	}
	var names []string
	for i := range 28_000 {
		names = append(names, fmt.Sprintf("model%04x", i))
	}
	models.Annotations = map[string]string{"outboard.dev/gpu-models": strings.Join(names, ",")}
	for i := range 8_000 {
		images.Spec.Containers = append(images.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: fmt.Sprintf("image-%d", i)})
	}
	asked := resources.Spec.Containers[0].Resources
	for i := range 20_000 {
		asked.Requests[corev1.ResourceName(fmt.Sprintf("example.com/r%d", i))] = resource.MustParse("1")
	}
	return map[string]*corev1.Pod{"labels": labels, "GPU models": models, "images": images, "resources": resources}
}

// The filter and the prioritize call about the largest possible pods and all nodes of a large
// cluster together take less processor time than kube-scheduler's timeout for one call.
func TestLargePodsAreJudgedInTime(t *testing.T) {
	const httpTimeout = 3 * time.Second
	c := loadAll(t)
	view := busyView(c, 10_000)
	for n := range view.All() {
		n.Object.Labels["nvidia.com/gpu.product"] = "modelffff"
	}
	for name, pod := range largePods() {
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
