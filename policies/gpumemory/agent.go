package gpumemory

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
)

// agent is everything that differs from one node agent to another: from where the GPUs of a node and
// the request of a pod are read, and which annotations an allocation writes.
//
//	                  | GPUFractioning, ContainerToolkit              | GPUShare
//	ledgers           | nvidia.com/gpu-memory, in MiB                 | aliyun.com/gpu-mem, in the unit
//	GPUs of a node    | labels nvidia.com/gpu.count, gpu.memory       | capacity aliyun.com/gpu-count, gpu-mem
//	request of a pod  | annotations                                   | limits aliyun.com/gpu-mem, gpu-count
//	                  | nvidia.com/container.NAME.gpu-memory.request, |
//	                  | nvidia.com/container.NAME.gpu-memory.limit,   |
//	                  | outboard.dev/gpus, outboard.dev/whole-gpus    | label aliyun.com/gpu-count
//	order of pods     | does not matter                               | matters
//
// GPUFractioning writes nvidia.com/container.NAME.gpus.devices: "0,2", and what was allocated as the
// limit. ContainerToolkit writes
// nvidia.cdi.k8s.io/container.NAME: "nvidia.com/gpu=0,nvidia.com/gpu=2".
type agent interface {
	// resource names the ledgers of nodes.
	resource() string
	// resources are those by which pods request GPUs; none if they do so by annotations.
	resources() []corev1.ResourceName
	// ordered reports whether the agent gives pods with equal requests their GPUs in the order in
	// which they were bound.
	ordered() bool
	// hardware returns what the node reports about its GPUs.
	hardware(*corev1.Node) hardware
	// request returns what the pod requests, without its models, or nil when it requests no GPU. The
	// error, for the pod's owner, is about an annotation; then the request is what a pod on a node
	// counts as.
	request(*corev1.Pod) (*request, error)
	// state returns what the policy reads from a pod on a node.
	state(*corev1.Pod) podState
	// annotations returns the annotations from which the agent reads which GPUs the pod gets, and
	// how much of each; the GPUs have the given sizes.
	annotations(ask policy.ReserveRequest, r *request, given []policy.Amount, sizes []int64) map[string]string
}

// UnreadRequest implements policy.UnreadRequester.
func (p *gpuMemory) UnreadRequest(pod *corev1.Pod) string {
	if own, err := p.agent.request(pod); own != nil || err != nil {
		return ""
	}
	for _, other := range []NodeAgent{GPUFractioning, GPUShare} {
		if r, _ := (&Config{NodeAgent: other}).agent().request(pod); r != nil {
			how := "annotations, for nodeAgent: GPUFractioning or ContainerToolkit"
			if other == GPUShare {
				how = "limits, for nodeAgent: GPUShare"
			}
			return fmt.Sprintf("requests GPUs by %s, and the configuration has nodeAgent: %s", how, p.config.NodeAgent)
		}
	}
	return ""
}

func (c *Config) agent() agent {
	switch c.NodeAgent {
	case GPUFractioning:
		return &gpuFractioning{nvidia{c}}
	case ContainerToolkit:
		return &containerToolkit{nvidia{c}}
	}
	return &gpuShare{c}
}
