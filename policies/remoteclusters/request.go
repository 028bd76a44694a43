package remoteclusters

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// maxAmount bounds every amount, so that no sum or difference of two of them overflows.
const maxAmount = 1 << 60

// amount is what the pod requests of a resource: cpu in thousandths of a core, others in their
// unit. The other fields are the keys of the resource in signals.
type amount struct {
	resource             corev1.ResourceName
	n                    int64
	free, total, largest string
}

// request returns what the pod requests, including one pod, in order of resource.
func request(pod *corev1.Pod) []amount {
	requests := requestsOf(pod)
	amounts := make([]amount, 0, len(requests))
	for name, n := range requests {
		key := string(name)
		amounts = append(amounts, amount{name, n, key + "/free", key + "/total", key + "/largest"})
	}
	slices.SortFunc(amounts, func(a, b amount) int { return cmp.Compare(a.resource, b.resource) })
	return amounts
}

// requestsOf returns what the pod requests, or what it holds if it is bound.
func requestsOf(pod *corev1.Pod) map[corev1.ResourceName]int64 {
	requests := map[corev1.ResourceName]int64{}
	for name, quantity := range snapshot.PodRequests(pod) {
		n := quantity.Value()
		if name == corev1.ResourceCPU {
			n = quantity.MilliValue()
		}
		if n > 0 {
			requests[name] = min(n, maxAmount)
		}
	}
	requests[corev1.ResourcePods] = 1
	return requests
}

// count converts a signal's number to an amount, rounded down.
func count(resource corev1.ResourceName, number float64) int64 {
	const rounding = 1e-6 // 1.1 cores are 1100.0000000000002 thousandths, and may be 1099.9999999999998
	if resource == corev1.ResourceCPU {
		number *= 1000
	}
	return int64(math.Floor(max(-maxAmount, min(number+rounding, maxAmount))))
}

func add(a, b int64) int64 { return min(a+b, maxAmount) }
