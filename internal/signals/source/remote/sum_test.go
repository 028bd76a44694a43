package remote

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func cpu(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
}

func container(text string) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: cpu(text)}}
}

// TestRequests: requests count as they do for kube-scheduler.
func TestRequests(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := container("300m")
	sidecar.RestartPolicy = &always
	resizing := &corev1.Pod{
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: container("100m").Resources}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c", AllocatedResources: cpu("900m"), Resources: &corev1.ResourceRequirements{Requests: cpu("900m")}}}},
	}
	for what, tc := range map[string]struct {
		pod  *corev1.Pod
		want int64
	}{
		"nothing":             {&corev1.Pod{}, 0},
		"containers":          {&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container("100m"), container("1")}}}, 1100},
		"a large init":        {&corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{container("2")}, Containers: []corev1.Container{container("1")}}}, 2000},
		"a sidecar":           {&corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{sidecar, container("2")}, Containers: []corev1.Container{container("1")}}}, 2300},
		"overhead":            {&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container("1")}, Overhead: cpu("50m")}}, 1050},
		"one that gives back": {resizing, 900},
		"less than nothing":   {&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container("-1")}}}, 0},
	} {
		got := map[corev1.ResourceName]int64{}
		tc.pod.Spec.NodeName = "a"
		counted, ok := podOf(tc.pod)
		if !ok {
			t.Fatalf("%s: does not count", what)
		}
		for _, a := range counted.requests {
			got[a.resource] = a.n
		}
		if got[corev1.ResourceCPU] != tc.want || got[corev1.ResourcePods] != 1 {
			t.Errorf("%s: counts as %v, want %d thousandths and one pod", what, got, tc.want)
		}
	}
}

// TestOverbooked: a node whose pods request more than it has does not reduce the free resources of
// the others.
func TestOverbooked(t *testing.T) {
	sized := func(name, size string) node {
		return nodeOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Allocatable: cpu(size), Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}})
	}
	on := func(name string, n int64) pod {
		return pod{node: name, requests: []amount{{corev1.ResourceCPU, n}, {"other", 5}}}
	}
	all := sum(
		map[types.UID]node{"a": sized("a", "1"), "b": sized("b", "4"), "huge": {name: "huge", ready: true, open: true, allocatable: []amount{{corev1.ResourceCPU, math.MaxInt64}}}},
		map[types.UID]pod{"1": on("a", 800), "2": on("a", 800), "3": on("b", 1000), "4": on("huge", math.MaxInt64), "5": on("huge", 1)},
	)
	if got, want := all.resources[corev1.ResourceCPU], (capacity{total: math.MaxInt64, free: 3000, largest: 3000}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
