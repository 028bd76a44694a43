package whatif_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/internal/whatif"
	"outboard.dev/outboard/snapshot"
)

// benchNodes and benchPods are a large cluster: 8 GPUs of 80 GiB on each node, one pod on each GPU.
const (
	benchNodes = 5000
	benchPods  = 40000
)

// largeView returns the cluster. Each GPU has at most 40 GiB left, and each tenth node is reserved or cordoned.
func largeView() *snapshot.View {
	var b snapshot.Builder
	for i := range benchNodes {
		n := gpuNode(fmt.Sprintf("gpu-node-%05d", i), func(n *corev1.Node) {
			n.Status.Allocatable = corev1.ResourceList{
				"cpu": resource.MustParse("96"), "memory": resource.MustParse("768Gi"), "pods": resource.MustParse("110"),
				gpuMemory: resource.MustParse("640"), "aliyun.com/gpu-count": resource.MustParse("8"),
			}
			n.Status.Capacity = n.Status.Allocatable
			switch i % 20 {
			case 0:
				n.Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "reserved", Effect: corev1.TaintEffectNoSchedule}}
			case 1:
				n.Spec.Unschedulable = true
			}
		})
		b.SetNode(n)
	}
	for i := range benchPods {
		pod := gpuPod(fmt.Sprintf("p-%05d", i), fmt.Sprintf("gpu-node-%05d", i/8), int32(i%3), fmt.Sprint(40+i*7%40), func(pod *corev1.Pod) {
			pod.Annotations["ALIYUN_COM_GPU_MEM_IDX"] = fmt.Sprint(i % 8)
			pod.Labels = map[string]string{"app": []string{"web", "db", "batch"}[i%3]}
			pod.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("4")
		})
		b.SetPod(pod)
	}
	return b.View()
}

// BenchmarkFind searches in a cluster of 5,000 nodes with 40,000 pods for what would make a pod fit. The target is 50 ms of a processor.
// The first search, which computes the facts of all nodes, is not counted.
func BenchmarkFind(b *testing.B) {
	view, e := largeView(), engineOf(b, members(b, gpuOnly))
	for name, pod := range map[string]*corev1.Pod{
		"GPU": gpuPod("new", "", 1, "60"),
		"GPU-and-CPU": gpuPod("new", "", 1, "60", func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("80")
		}),
		"CPU": gpuPod("new", "", 1, "8", func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("80")
		}),
		"selector":      gpuPod("new", "", 1, "8", func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"zone": "b"} }),
		"nothing-helps": gpuPod("new", "", 1, "600"),
	} {
		b.Run(name, func(b *testing.B) {
			var found []whatif.Remedy
			if _, err := whatif.Find(b.Context(), whatif.Cluster{Engine: e, View: view}, pod); err != nil {
				b.Fatal(err)
			}
			began := processorTime(b)
			for b.Loop() {
				var err error
				if found, err = whatif.Find(b.Context(), whatif.Cluster{Engine: e, View: view}, pod); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((processorTime(b)-began).Seconds()*1000/float64(b.N), "processor-ms/op")
			for i := range found {
				b.Log(&found[i])
			}
		})
	}
}

// processorTime returns what this process has used, so that other processes do not matter.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
