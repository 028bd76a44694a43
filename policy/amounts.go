package policy

import (
	"math"

	corev1 "k8s.io/api/core/v1"
)

// AddAmounts adds two amounts of something, which are 0 or more. A sum that cannot be counted
// is math.MaxInt64.
func AddAmounts(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Asked is how much of an extended resource the pod asks for, 0 or more, by Kubernetes' rule:
// init containers run one after the other, before the containers, but beside the sidecars that
// were started before them. It allocates nothing.
//
// That is also what a pod on a node has: it cannot be resized in place in anything but cpu and
// memory, for which there is [snapshot.PodRequests].
func Asked(pod *corev1.Pod, resource corev1.ResourceName) int64 {
	limit := func(c *corev1.Container) int64 {
		q, ok := c.Resources.Limits[resource]
		if !ok {
			return 0
		}
		return max(0, q.Value())
	}
	var sidecars, peak int64
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		n := AddAmounts(sidecars, limit(c))
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars = n
		}
		peak = max(peak, n)
	}
	sum := sidecars
	for i := range pod.Spec.Containers {
		sum = AddAmounts(sum, limit(&pod.Spec.Containers[i]))
	}
	return max(sum, peak)
}
