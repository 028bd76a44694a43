package audit

import (
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy/fields"
)

// nvidiaResource names the ledgers for pods that NVIDIA's agents give their GPUs. They count in MiB.
const nvidiaResource = "nvidia.com/gpu-memory"

// nvidiaShares returns what the annotations that NVIDIA's agents read request of each GPU, and say
// that the pod holds, by index. Containers share the GPUs of the pod.
func (a *auditor) nvidiaShares(pod *corev1.Pod) (amount int64, shares map[string]share) {
	memory := func(c *corev1.Container) int64 {
		text, ok := pod.Annotations["nvidia.com/container."+c.Name+".gpu-memory.request"]
		if !ok {
			text = pod.Annotations["nvidia.com/container."+c.Name+".gpu-memory.limit"]
		}
		q, err := fields.ParseQuantity(text)
		switch {
		case err != nil || q.Sign() <= 0:
			return 0
		case q.CmpInt64(math.MaxInt64) > 0: // Value is any number then
			return maxAmount >> 10
		}
		return min((q.Value()-1)>>20+1, maxAmount>>10)
	}
	var sidecars, most, sum int64
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		most = max(most, sidecars+memory(c))
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars += memory(c)
		}
	}
	for i := range pod.Spec.Containers {
		sum += memory(&pod.Spec.Containers[i])
	}
	amount = max(most, sum+sidecars)
	_, whole := pod.Annotations["outboard.dev/whole-gpus"]
	shares = map[string]share{}
	for key, value := range pod.Annotations {
		if !strings.HasPrefix(key, "nvidia.cdi.k8s.io") && !(strings.HasPrefix(key, "nvidia.com/container.") && strings.HasSuffix(key, ".gpus.devices")) {
			continue
		}
		for device := range strings.SplitSeq(value, ",") {
			index := strings.TrimPrefix(strings.TrimSpace(device), "nvidia.com/gpu=")
			if _, err := strconv.ParseUint(index, 10, 16); err != nil || len(shares) == maxGPUs {
				continue
			}
			held := amount
			if whole || held == 0 {
				held = a.gpuSize(nvidiaResource, pod.Spec.NodeName, index)
			}
			shares[index] = share{Holder: Holder{pod.Namespace, pod.Name, pod.UID, held}}
		}
	}
	return amount, shares
}
