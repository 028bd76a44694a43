package cost

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resources "k8s.io/component-helpers/resource"
)

type amount struct {
	resource corev1.ResourceName
	n        float64
}

// request returns what the pod requests, including one pod, in order of resource; all amounts are
// positive.
func request(pod *corev1.Pod) []amount {
	requests := []amount{{corev1.ResourcePods, 1}}
	for name, quantity := range resources.PodRequests(pod, resources.PodResourcesOptions{}) {
		if n := quantity.AsApproximateFloat64(); n > 0 {
			requests = append(requests, amount{name, n})
		}
	}
	slices.SortFunc(requests, func(a, b amount) int { return compareResource(a, b.resource) })
	return requests
}

func compareResource(a amount, resource corev1.ResourceName) int {
	return strings.Compare(string(a.resource), string(resource))
}

// refusal returns why the pod must not run on spot nodes; "" if it may.
func (p *cost) refusal(pod *corev1.Pod) string {
	var priority int32
	if pod.Spec.Priority != nil {
		priority = *pod.Spec.Priority
	}
	if from := p.config.Spot.FromPriority; from != nil && priority >= *from {
		return fmt.Sprintf("its priority %d is at least spot.fromPriority, %d", priority, *from)
	}
	return ""
}
