package devices

import (
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

func (p *devices) request(pod *corev1.Pod) int64 {
	return snapshot.ExtendedResourceRequest(pod, corev1.ResourceName(p.config.Resource))
}
