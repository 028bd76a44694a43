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

// need is what a pod requests of one feature.
type need struct {
	feature *feature
	seats   int64 // 1 or more
}

// request returns what the pod requests, in order of the features' names. Errors are for the pod's
// owner.
func (p *licenses) request(pod *corev1.Pod) ([]need, error) {
	var needs []need
	if text := strings.TrimSpace(pod.Annotations[p.annotation]); text != "" {
		for item := range fields.List(text, ",") {
			n, err := p.parse(item)
			if err == nil && slices.ContainsFunc(needs, func(other need) bool { return other.feature == n.feature }) {
				err = fmt.Errorf("%q is there twice", n.feature.Name)
			}
			if err != nil {
				return nil, fmt.Errorf("annotation %s: %w", p.annotation, err)
			}
			needs = append(needs, n)
		}
	}
	for _, f := range p.features {
		if f.Resource == "" {
			continue
		}
		seats := snapshot.ExtendedResourceRequest(pod, corev1.ResourceName(f.Resource))
		if seats == 0 {
			continue
		}
		if slices.ContainsFunc(needs, func(other need) bool { return other.feature == f }) {
			return nil, fmt.Errorf("seats of %q are requested twice, by the annotation %s and the resource %s: one of them must go", f.Name, p.annotation, f.Resource)
		}
		needs = append(needs, need{f, seats})
	}
	slices.SortFunc(needs, func(a, b need) int { return strings.Compare(a.feature.Name, b.feature.Name) })
	return needs, nil
}

// parse reads "matlab=2", or "matlab", which is one seat.
func (p *licenses) parse(item string) (need, error) {
	name, number, counted := strings.Cut(item, "=")
	name, number = strings.TrimSpace(name), strings.TrimSpace(number)
	i := slices.IndexFunc(p.features, func(f *feature) bool { return f.Name == name })
	if i < 0 {
		return need{}, fmt.Errorf("there is no license %.100q", name)
	}
	if !counted {
		return need{p.features[i], 1}, nil
	}
	seats, err := strconv.ParseInt(number, 10, 64)
	if err != nil || seats < 1 || seats > maxSeats {
		return need{}, fmt.Errorf("%.100q is not a number of seats, as in %s=1", number, name)
	}
	return need{p.features[i], seats}, nil
}
