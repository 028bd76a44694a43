package rules

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/snapshot"
)

// usage is what the pods on a node hold.
type usage struct {
	// Pods is the number of pods.
	Pods int64 `json:"pods"`
	// Requested is the sum of their requests, 0 for resources of the node that no pod requests.
	Requested corev1.ResourceList `json:"requested"`
	// Free is what is allocatable and not requested; negative if a node is overcommitted.
	Free corev1.ResourceList `json:"free"`
}

// usageOf adds up the pods by the formula of kube-scheduler's NodeResourcesFit.
func usageOf(n *snapshot.Node) *usage {
	u := &usage{
		Pods: int64(len(n.Pods)), Requested: corev1.ResourceList{}, Free: corev1.ResourceList{},
	}
	for name := range n.Object.Status.Allocatable {
		u.Requested[name] = resource.Quantity{}
	}
	for _, pod := range n.Pods {
		for name, q := range request(pod) {
			sum := u.Requested[name].DeepCopy()
			sum.Add(q)
			u.Requested[name] = sum
		}
	}
	for name, q := range n.Object.Status.Allocatable {
		free := q.DeepCopy()
		free.Sub(u.Requested[name])
		u.Free[name] = free
	}
	return u
}

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
