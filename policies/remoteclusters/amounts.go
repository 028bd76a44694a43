package remoteclusters

import (
	"cmp"
	"math"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"
	resources "k8s.io/component-helpers/resource"

	"outboard.dev/outboard/snapshot"
)

// most bounds every amount, so that no sum or difference of two of them overflows.
const most = 1 << 60

// amount is what the pod asks for of a resource: of cpu in thousandths of a core, of others in
// their unit. The other fields are the keys of the resource in signals.
type amount struct {
	resource             corev1.ResourceName
	n                    int64
	free, total, largest string
}

// amountsOf is what the pod asks for, one place for a pod among it, in order of resource.
func amountsOf(pod *corev1.Pod) []amount {
	requests := requestsOf(pod)
	asked := make([]amount, 0, len(requests))
	for name, n := range requests {
		key := string(name)
		asked = append(asked, amount{name, n, key + "/free", key + "/total", key + "/largest"})
	}
	slices.SortFunc(asked, func(a, b amount) int { return cmp.Compare(a.resource, b.resource) })
	return asked
}

func requestsOf(pod *corev1.Pod) map[corev1.ResourceName]int64 {
	requests := map[corev1.ResourceName]int64{}
	for name, quantity := range resources.PodRequests(pod, resources.PodResourcesOptions{}) {
		n := quantity.Value()
		if name == corev1.ResourceCPU {
			n = quantity.MilliValue()
		}
		if n > 0 {
			requests[name] = min(n, most)
		}
	}
	requests[corev1.ResourcePods] = 1
	return requests
}

// count is a signal's number as amounts are counted, rounded down.
func count(resource corev1.ResourceName, number float64) int64 {
	const rounding = 1e-6 // 1.1 cores are 1100.0000000000002 thousandths, and may be 1099.9999999999998
	if resource == corev1.ResourceCPU {
		number *= 1000
	}
	return int64(math.Floor(max(-most, min(number+rounding, most))))
}

func add(a, b int64) int64 { return min(a+b, most) }

// arrivals are what the pods on a node ask for, in the order in which they were bound, so that
// those bound since any time are found by a search.
type arrivals struct {
	bound []int64 // Unix seconds, the latest first; see boundAt
	sums  map[corev1.ResourceName][]int64
}

func arrivalsOf(n *snapshot.Node) arrivals {
	type arrival struct {
		bound    int64
		requests map[corev1.ResourceName]int64
	}
	pods := make([]arrival, len(n.Pods))
	for i, pod := range n.Pods {
		pods[i] = arrival{boundAt(pod), requestsOf(pod)}
	}
	slices.SortStableFunc(pods, func(a, b arrival) int { return cmp.Compare(b.bound, a.bound) })
	all := arrivals{bound: make([]int64, len(pods)), sums: map[corev1.ResourceName][]int64{}}
	for i, pod := range pods {
		all.bound[i] = pod.bound
		for resource := range pod.requests {
			if all.sums[resource] == nil {
				all.sums[resource] = make([]int64, len(pods)+1) // of the first so many pods
			}
		}
		for resource, sums := range all.sums {
			sums[i+1] = add(sums[i], pod.requests[resource])
		}
	}
	return all
}

// since is how many pods were bound at the time or later. Of the API server's times, the part
// of a second is missing: a pod that may have been bound later counts.
func (a *arrivals) since(first int64) int {
	return sort.Search(len(a.bound), func(i int) bool { return a.bound[i] < first })
}

// sum is what so many pods ask for, the latest first.
func (a *arrivals) sum(pods int, resource corev1.ResourceName) int64 {
	sums := a.sums[resource]
	if sums == nil {
		return 0
	}
	return sums[pods]
}

// boundAt is when the pod was bound, in Unix seconds. One that does not say so has just been
// bound by us, and was not seen since: it is later than all others. Its condition, if it has
// one, is of a time when there was no place for it.
func boundAt(pod *corev1.Pod) int64 {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Unix()
		}
	}
	return math.MaxInt64
}
