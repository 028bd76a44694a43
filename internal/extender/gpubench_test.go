package extender_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/snapshot"
)

// gpuPodsPerNode share the 8 GPUs of each node.
const gpuPodsPerNode = 10

// serveGPUs is a server with GPUMemory, and a cluster of this many nodes.
func serveGPUs(size int) (http.Handler, error) {
	p, err := gpumemory.New(gpumemory.Defaults())
	if err != nil {
		return nil, err
	}
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "GPUMemory", Policy: p, Weight: 1}}})
	if err != nil {
		return nil, err
	}
	var builder snapshot.Builder
	for i := range size {
		builder.SetNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: gpuNodeName(i)},
			Status: corev1.NodeStatus{Capacity: corev1.ResourceList{
				"aliyun.com/gpu-mem": resource.MustParse("128"), "aliyun.com/gpu-count": resource.MustParse("8"),
			}},
		})
		for k := range gpuPodsPerNode {
			pod := gpuPod(fmt.Sprintf("pod-%d-%d", i, k))
			pod.Spec.NodeName = gpuNodeName(i)
			pod.Annotations = map[string]string{
				"ALIYUN_COM_GPU_MEM_IDX": fmt.Sprint(k % 8), "ALIYUN_COM_GPU_MEM_POD": "6", "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
			}
			builder.SetPod(pod)
		}
	}
	cluster := &fakeCluster{view: builder.View()}
	for i := range pods {
		pod := gpuPod("asked")
		pod.UID, pod.ResourceVersion = types.UID(fmt.Sprintf(uidFormat, i)), "12345"
		cluster.pods = append(cluster.pods, pod)
	}
	return extender.New(extender.Options{
		Profile: "/", Engine: e, Cluster: cluster,
		Log: decision.NewLog(0), Metrics: callmetrics.New(prometheus.NewRegistry()),
	}).Verb(decision.Filter), nil
}

func gpuNodeName(i int) string { return fmt.Sprintf("gpu-%05d.eu-central-1.compute.internal", i) }

// gpuPod requests 6 of a GPU's 16 GiB.
func gpuPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"aliyun.com/gpu-mem": resource.MustParse("6")},
		}}}},
	}
}

// BenchmarkGPUMemory measures a filter call by names for a pod that requests a share of a GPU, as the client sees it, and an
// echo of the same body.
func BenchmarkGPUMemory(b *testing.B) {
	for _, size := range []int{1000, 5000} {
		b.Run(fmt.Sprintf("names=%d", size), func(b *testing.B) {
			pod, asked := gpuPod("asked"), make([]string, size)
			pod.UID, pod.ResourceVersion = uidPlace, "12345"
			for i := range asked {
				asked[i] = gpuNodeName(i)
			}
			body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod, NodeNames: &asked})
			if err != nil {
				b.Fatal(err)
			}
			arms := []*arm{newArm(b, "gpus", size, 0), newArm(b, "echo", size, 0)}
			var into bytes.Buffer
			version := 0
			for _, a := range arms {
				a.call(b, body, &into)
				a.times = a.times[:0]
			}
			for b.Loop() {
				for _, a := range arms {
					for range 20 {
						version++
						a.call(b, fresh(body, version), &into)
					}
				}
			}
			ours, echo := arms[0].median(), arms[1].median()
			b.ReportMetric(ours/1e3, "ours-µs")
			b.ReportMetric(echo/1e3, "echo-µs")
			b.ReportMetric(ours/echo, "ours/echo")
			b.ReportMetric(0, "ns/op")
		})
	}
}
