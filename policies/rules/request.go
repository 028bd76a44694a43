package rules

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/snapshot"
)

// request returns what kube-scheduler counts for the pod in total, and 0 for the resources that
// every node has and the pod does not request.
func request(pod *corev1.Pod) corev1.ResourceList {
	requests := snapshot.PodRequests(pod)
	for _, name := range []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	} {
		if _, ok := requests[name]; !ok {
			requests[name] = resource.Quantity{}
		}
	}
	return requests
}
