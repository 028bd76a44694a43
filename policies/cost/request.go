package cost

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The values of the pod's annotation about spot nodes.
const (
	never   = "never"
	allowed = "allowed"
)

type amount struct {
	resource corev1.ResourceName
	n        float64
}

func compareResource(a amount, resource corev1.ResourceName) int {
	return strings.Compare(string(a.resource), string(resource))
}

// refusal returns why the pod must not run on spot nodes; "" if it may.
func (p *cost) refusal(pod *corev1.Pod) (string, error) {
	spot := &p.config.Spot
	if word, ok := pod.Annotations[spot.ChoiceAnnotation]; ok && spot.ChoiceAnnotation != "" {
		switch word {
		case never:
			return fmt.Sprintf("its annotation %s is %q", spot.ChoiceAnnotation, never), nil
		case allowed:
			return "", nil
		}
		return "", fmt.Errorf("annotation %s: %q must be %q or %q", spot.ChoiceAnnotation, word, never, allowed)
	}
	var priority int32
	if pod.Spec.Priority != nil {
		priority = *pod.Spec.Priority
	}
	if spot.FromPriority != nil && priority >= *spot.FromPriority {
		return fmt.Sprintf("its priority %d is at least spot.fromPriority, %d", priority, *spot.FromPriority), nil
	}
	return "", nil
}
