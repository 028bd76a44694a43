package theater

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// GPUMem is the resource of pods that share a GPU.
const GPUMem = corev1.ResourceName("aliyun.com/gpu-mem")

// GPUShare configures Outboard as a replacement of the gpushare extender: the same paths, the same
// resource.
const GPUShare = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- path: /gpushare-scheduler
  managedResources:
  - {name: aliyun.com/gpu-mem}
  - {name: aliyun.com/gpu-count}
  policies:
  - {type: GPUMemory, weight: 1}
`

// GPUShareScheduler is the unchanged scheduler configuration of a gpushare installation.
func GPUShareScheduler(o *stage.Outboard) string {
	return strings.ReplaceAll(SchedulerConfig(Extender{Outboard: o, Path: "/gpushare-scheduler", Verbs: "filter bind preempt", Managed: []string{string(GPUMem)}}),
		"ignoredByScheduler: true", "ignoredByScheduler: false")
}

// GPUs describes a node with a number of GPUs of the same memory.
func GPUs(name string, count, each int) controlplane.NodeSpec {
	return controlplane.NodeSpec{Name: name, CPU: "1000", Memory: "1000Gi", Resources: map[string]string{
		"pods": "1000", "aliyun.com/gpu-count": fmt.Sprint(count), string(GPUMem): fmt.Sprint(count * each),
	}}
}

// GPUPod describes a pod that shares a GPU.
func GPUPod(name string, units int) controlplane.PodSpec {
	return controlplane.PodSpec{Name: name, Resources: map[string]string{string(GPUMem): fmt.Sprint(units)}}
}
