package hardwarehealth

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy/fields"
)

// all means every rule, in a pod's annotation.
const all = "*"

// request returns the names of the rules that the pod tolerates.
func (p *hardwareHealth) request(pod *corev1.Pod) []string {
	return slices.Collect(fields.List(pod.Annotations[p.config.TolerationAnnotation], ",")) // without the annotation, it is "", which no rule has as its name
}

// applies reports whether the rule applies to a pod with the requests.
func (r *Rule) applies(requests corev1.ResourceList) bool {
	return len(r.Resources) == 0 || slices.ContainsFunc(r.Resources, func(name corev1.ResourceName) bool {
		q, ok := requests[name]
		return ok && q.Sign() > 0
	})
}
