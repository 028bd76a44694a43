package podlimit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// sharedLimit is the key of counts that do not belong to one namespace.
const sharedLimit = ""

// request returns the key under which the pod counts, and whether it counts.
func (p *podLimit) request(pod *corev1.Pod) (string, bool) {
	key := pod.Namespace
	if len(p.namespaces) > 0 {
		if _, listed := slices.BinarySearch(p.namespaces, pod.Namespace); !listed && !p.all {
			return "", false
		}
		key = sharedLimit
	}
	return key, p.selector.Matches(labels.Set(pod.Labels))
}
