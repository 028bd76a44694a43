package utilization

import corev1 "k8s.io/api/core/v1"

// kind is a resource that the policy evaluates.
type kind int

const (
	cpu kind = iota
	memory
	kinds int = iota
)

var names = [kinds]corev1.ResourceName{cpu: corev1.ResourceCPU, memory: corev1.ResourceMemory}

// amounts are in cores, and in bytes.
type amounts [kinds]float64

// The prediction of Trimaran's TargetLoadPacking: a container without a limit uses requestFactor
// times its request, and unstated without a request either.
const requestFactor = 1.5

var unstated = amounts{cpu: 1, memory: 200 << 20}

// request returns what the pod will use when it runs, with sidecars and pod-level resources. Other
// init containers end before.
func request(pod *corev1.Pod) amounts {
	var sum amounts
	for k := range sum {
		sum[k] = predictKind(pod, kind(k)) + amount(pod.Spec.Overhead, kind(k))
	}
	return sum
}

func predictKind(pod *corev1.Pod, k kind) float64 {
	if pod.Spec.Resources != nil {
		if uses, known := stated(pod.Spec.Resources, k); known {
			return uses
		}
	}
	var sum float64
	add := func(c *corev1.Container) {
		uses, known := stated(&c.Resources, k)
		if !known {
			uses = unstated[k]
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

// stated predicts the use from a limit, or else from a request, if there is one.
func stated(r *corev1.ResourceRequirements, k kind) (uses float64, known bool) {
	if limit := amount(r.Limits, k); limit > 0 {
		return limit, true
	}
	request := amount(r.Requests, k)
	return requestFactor * request, request > 0
}

// amount returns the amount in the list, 0 or more.
func amount(list corev1.ResourceList, k kind) float64 {
	q := list[names[k]]
	return max(0, q.AsApproximateFloat64())
}
