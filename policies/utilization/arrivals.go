package utilization

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/snapshot"
)

// kind is a resource the policy looks at.
type kind int

const (
	cpu kind = iota
	memory
	kinds int = iota
)

var names = [kinds]corev1.ResourceName{cpu: corev1.ResourceCPU, memory: corev1.ResourceMemory}

// amounts are in cores, and in bytes.
type amounts [kinds]float64

// arrivals are what the pods on a node are predicted to use, in the order in which they
// were bound, so that those bound since any time are found by a search.
type arrivals struct {
	bound []int64   // Unix seconds, the latest first; see boundAt
	sums  []amounts // of the first so many pods: one longer than bound
}

func (p *utilization) arrivalsOf(n *snapshot.Node) arrivals {
	type arrival struct {
		bound int64
		uses  amounts
	}
	pods := make([]arrival, len(n.Pods))
	for i, pod := range n.Pods {
		pods[i] = arrival{boundAt(pod), p.predict(pod)}
	}
	slices.SortStableFunc(pods, func(a, b arrival) int { return cmp.Compare(b.bound, a.bound) })
	all := arrivals{bound: make([]int64, len(pods)), sums: make([]amounts, len(pods)+1)}
	for i, pod := range pods {
		all.bound[i], all.sums[i+1] = pod.bound, all.sums[i]
		for k := range pod.uses {
			all.sums[i+1][k] += pod.uses[k]
		}
	}
	return all
}

// since is how many pods were bound at the time or later, and what they use of a resource.
// Of the API server's times, the part of a second is missing: a pod that may have been
// bound later counts.
func (a *arrivals) since(t time.Time, k kind) (pods int, uses float64) {
	first := t.Unix()
	pods = sort.Search(len(a.bound), func(i int) bool { return a.bound[i] < first })
	return pods, a.sums[pods][k]
}

// boundAt is when the pod was bound, in Unix seconds. One that does not say so has just
// been bound by us, and was not seen since: it is later than all others. Its condition, if
// it has one, is of a time when there was no place for it.
func boundAt(pod *corev1.Pod) int64 {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Unix()
		}
	}
	return math.MaxInt64
}

// predict is what the pod will use when it runs: the prediction of Trimaran's
// TargetLoadPacking, also for memory, with sidecars, and with what is said of the pod as a
// whole. Other init containers end before.
func (p *utilization) predict(pod *corev1.Pod) amounts {
	var sum amounts
	for k := range sum {
		sum[k] = p.predictKind(pod, kind(k)) + amount(pod.Spec.Overhead, kind(k))
	}
	return sum
}

func (p *utilization) predictKind(pod *corev1.Pod, k kind) float64 {
	if pod.Spec.Resources != nil {
		if uses, known := p.stated(pod.Spec.Resources, k); known {
			return uses
		}
	}
	var sum float64
	add := func(c *corev1.Container) {
		uses, known := p.stated(&c.Resources, k)
		if !known {
			uses = p.unstated[k]
		}
		sum += uses
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return sum
}

// stated is a prediction from a limit or else a request, if there is one.
func (p *utilization) stated(r *corev1.ResourceRequirements, k kind) (uses float64, known bool) {
	if limit := amount(r.Limits, k); limit > 0 {
		return limit, true
	}
	request := amount(r.Requests, k)
	return p.config.Prediction.RequestFactor * request, request > 0
}

// amount is 0 or more.
func amount(list corev1.ResourceList, k kind) float64 {
	q, ok := list[names[k]]
	if !ok {
		return 0
	}
	return approximately(&q)
}

func approximately(q *resource.Quantity) float64 {
	return max(0, q.AsApproximateFloat64())
}
