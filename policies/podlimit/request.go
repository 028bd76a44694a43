package podlimit

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// group are the pods that share a limit.
type group struct {
	namespace string // "": several
	value     string // of the label in each
}

// request returns the group in which the pod counts, and whether it counts.
func (p *podLimit) request(pod *corev1.Pod) (g group, counts bool) {
	g.namespace = pod.Namespace
	if len(p.namespaces) > 0 {
		if _, listed := slices.BinarySearch(p.namespaces, pod.Namespace); !listed && !p.all {
			return g, false
		}
		g.namespace = ""
	}
	counts = p.selector.Matches(labels.Set(pod.Labels))
	if p.each != nil && counts {
		g.value, counts = pod.Labels[p.each.Label]
	}
	return g, counts
}

// ownLimit returns the limit that the pod declares, or that of no pod.
func (p *podLimit) ownLimit(pod *corev1.Pod) (int64, error) {
	text, declared := p.maxFromPod.Of(pod)
	if !declared {
		return math.MaxInt64, nil
	}
	n := parseLimit(text)
	if n < 1 {
		return 0, fmt.Errorf("the %s of the pod is %.100q: it must be a whole number from 1", p.maxFromPod, text)
	}
	return n, nil
}

// parseLimit returns -1 if the text is not a whole number from 0.
func parseLimit(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err != nil || n < 0 {
		return -1
	}
	return n
}
