package snapshot_test

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/snapshot"
)

// TestExtendedResourceRequest: a pod requests the maximum of what its containers use at the same time.
func TestExtendedResourceRequest(t *testing.T) {
	const fpga = "example.com/fpga"
	always := corev1.ContainerRestartPolicyAlways
	container := func(n int64, restart *corev1.ContainerRestartPolicy) corev1.Container {
		limits := corev1.ResourceList{fpga: *resource.NewQuantity(n, resource.DecimalSI), "example.com/other": resource.MustParse("7")}
		return corev1.Container{RestartPolicy: restart, Resources: corev1.ResourceRequirements{Limits: limits}}
	}
	run := func(n int64) corev1.Container { return container(n, nil) }
	sidecar := func(n int64) corev1.Container { return container(n, &always) }
	for _, tc := range []struct {
		what       string
		init, main []corev1.Container
		want       int64
	}{
		{"nothing", nil, nil, 0},
		{"none of it", nil, []corev1.Container{run(0), {}}, 0},
		{"less than nothing", nil, []corev1.Container{run(-3)}, 0},
		{"one container", nil, []corev1.Container{run(3)}, 3},
		{"several", nil, []corev1.Container{run(3), {}, run(2)}, 5},
		{"small init container", []corev1.Container{run(4)}, []corev1.Container{run(3), run(2)}, 5},
		{"large init container", []corev1.Container{run(6), run(1)}, []corev1.Container{run(3), run(2)}, 6},
		{"init containers alone", []corev1.Container{run(1), run(2)}, nil, 2},
		{"sidecar", []corev1.Container{sidecar(2)}, []corev1.Container{run(3)}, 5},
		{"sidecars before an init container", []corev1.Container{sidecar(2), sidecar(1), run(6)}, []corev1.Container{run(3)}, 9},
		{"sidecar behind an init container", []corev1.Container{run(4), sidecar(2)}, []corev1.Container{run(1)}, 4},
		{"very many", nil, []corev1.Container{run(math.MaxInt64), run(math.MaxInt64)}, math.MaxInt64},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: tc.init, Containers: tc.main}}
		if got := snapshot.ExtendedResourceRequest(pod, fpga); got != tc.want {
			t.Errorf("%s: requests %d, want %d", tc.what, got, tc.want)
		}
		if n := testing.AllocsPerRun(100, func() { snapshot.ExtendedResourceRequest(pod, fpga) }); n != 0 {
			t.Errorf("%s: allocates %v times", tc.what, n)
		}
	}
}
