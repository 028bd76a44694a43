package licenses

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

type need struct {
	feature *feature
	seats   int64 // 1 or more
}

// request returns what the pod requests, in order of the features' names. Errors are for the pod's
// owner.
func (p *licenses) request(pod *corev1.Pod) (needs []need, err error) {
	annotated, err := p.annotated(pod)
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", p.annotation, err)
	}
	for _, f := range p.features {
		n := need{f, annotated[f]}
		if f.Resource != "" {
			seats := snapshot.ExtendedResourceRequest(pod, corev1.ResourceName(f.Resource))
			if n.seats > 0 && seats > 0 {
				return nil, fmt.Errorf("seats of %q are requested twice, by the annotation %s and the resource %s: one of them must go", f.Name, p.annotation, f.Resource)
			}
			n.seats += seats
		}
		if n.seats > 0 {
			needs = append(needs, n)
		}
	}
	return needs, nil
}

// annotated reads the annotation, such as "matlab=2,simulink": a name alone is one seat.
func (p *licenses) annotated(pod *corev1.Pod) (map[*feature]int64, error) {
	text := strings.TrimSpace(pod.Annotations[p.annotation])
	if text == "" {
		return nil, nil
	}
	all := map[*feature]int64{}
	for item := range fields.List(text, ",") {
		name, number, counted := strings.Cut(item, "=")
		name, number = strings.TrimSpace(name), strings.TrimSpace(number)
		i := slices.IndexFunc(p.features, func(f *feature) bool { return f.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no license %.100q", name)
		}
		seats := int64(1)
		if counted {
			var err error
			seats, err = strconv.ParseInt(number, 10, 64)
			if err != nil || seats < 1 || seats > maxSeats {
				return nil, fmt.Errorf("%.100q is not a number of seats, as in %s=1", number, name)
			}
		}
		if all[p.features[i]] > 0 {
			return nil, fmt.Errorf("%q is there twice", name)
		}
		all[p.features[i]] = seats
	}
	return all, nil
}
