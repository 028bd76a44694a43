package remoteclusters

import (
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// boundPods are the pods on a node, with what they request.
type boundPods struct {
	snapshot.PodsByBindTime
	requested map[corev1.ResourceName][]int64 // sums over the first pods, from none to all
}

func boundPodsOf(n *snapshot.Node) boundPods {
	all := boundPods{snapshot.PodsByBindTimeOf(n), map[corev1.ResourceName][]int64{}}
	for i, pod := range all.Pods {
		requests := requestsOf(pod)
		for resource := range requests {
			if all.requested[resource] == nil {
				all.requested[resource] = make([]int64, len(all.Pods)+1)
			}
		}
		for resource, sums := range all.requested {
			sums[i+1] = add(sums[i], requests[resource])
		}
	}
	return all
}

// sum returns what the latest pods request, for this number of pods.
func (b *boundPods) sum(pods int, resource corev1.ResourceName) int64 {
	sums := b.requested[resource]
	if sums == nil {
		return 0
	}
	return sums[pods]
}
