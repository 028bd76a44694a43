package utilization

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resources "k8s.io/component-helpers/resource"
)

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

// request returns what the pod will use when it runs: the prediction of Trimaran's
// TargetLoadPacking, also for memory, with sidecars, and with pod-level resources. Other init
// containers end before. While the pod is resized, the higher one of what it requests and what it
// has counts; if the resize is infeasible, what it has counts.
func (p *utilization) request(pod *corev1.Pod) amounts {
	var sum amounts
	resized := withResourcesOfStatus(pod)
	for k := range sum {
		if resized == nil || !resources.IsPodResizeInfeasible(pod) {
			sum[k] = p.predictKind(pod, kind(k))
		}
		if resized != nil {
			sum[k] = max(sum[k], p.predictKind(resized, kind(k)))
		}
		sum[k] += amount(pod.Spec.Overhead, kind(k))
	}
	return sum
}

// withResourcesOfStatus returns the pod as if it requested what its status reports, or nil if it is
// not being resized.
func withResourcesOfStatus(pod *corev1.Pod) *corev1.Pod {
	s := &pod.Status
	if pod.Spec.NodeName == "" || len(s.ContainerStatuses)+len(s.InitContainerStatuses) == 0 && s.Resources == nil {
		return nil
	}
	resized := *pod // shallow: fields are replaced, not changed
	if requested := pod.Spec.Resources; requested != nil && s.Resources != nil {
		resized.Spec.Resources = &corev1.ResourceRequirements{Requests: only(requested.Requests, s.Resources.Requests), Limits: only(requested.Limits, s.Resources.Limits)}
	}
	resized.Spec.Containers = withResources(pod.Spec.Containers, s.ContainerStatuses)
	resized.Spec.InitContainers = withResources(pod.Spec.InitContainers, s.InitContainerStatuses)
	return &resized
}

// only returns what the pod has of the resources that it requests at pod level. For others the
// status reports the sum over the containers, or nothing more.
func only(requested, has corev1.ResourceList) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name := range requested {
		if q, ok := has[name]; ok {
			list[name] = q
		}
	}
	return list
}

func withResources(containers []corev1.Container, statuses []corev1.ContainerStatus) []corev1.Container {
	containers = slices.Clone(containers)
	for _, s := range statuses {
		i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == s.Name })
		if i >= 0 && s.Resources != nil {
			containers[i].Resources = *s.Resources
		}
	}
	return containers
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

// stated predicts the use from a limit, or else from a request, if there is one.
func (p *utilization) stated(r *corev1.ResourceRequirements, k kind) (uses float64, known bool) {
	if limit := amount(r.Limits, k); limit > 0 {
		return limit, true
	}
	request := amount(r.Requests, k)
	return p.config.Prediction.RequestFactor * request, request > 0
}

// amount returns the amount in the list, 0 or more.
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
