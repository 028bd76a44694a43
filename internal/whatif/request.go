package whatif

import (
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

// requests returns, for each resource that one container alone requests, and for each annotation,
// the largest amount with which the pod fits. It evaluates no amount of 0: such a pod would not use
// the resource.
func (s *search) requests() ([]Remedy, error) {
	var all []Remedy
	names, annotations := requested(s.pod), s.annotations()
	budget := s.left / max(1, len(names)+len(annotations))
	if budget < s.prepare {
		return nil, nil
	}
	requests := annotations
	for _, name := range names {
		if c, ok := soleContainer(s.pod, name); ok && unitOf(name) > 0 {
			requests = append(requests, request{search: s, name: name, container: c, unit: unitOf(name), amount: requestOf(c, name)})
		}
	}
	for i := range requests {
		r := &requests[i]
		s.left = budget
		r.from = r.units()
		if r.annotation != "" { // most are no requests
			if fits, _, err := r.fitsWith(1); err != nil || fits == "" {
				continue
			}
		}
		if found, err := r.largest(); err != nil {
			return nil, err
		} else if found != nil {
			all = append(all, *found)
		}
	}
	return all, nil
}

// requested returns the resources that containers of the pod request, in order of name.
func requested(pod *corev1.Pod) []corev1.ResourceName {
	names := map[corev1.ResourceName]bool{}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for _, list := range []corev1.ResourceList{containers[i].Resources.Requests, containers[i].Resources.Limits} {
				for name, amount := range list {
					names[name] = names[name] || amount.Sign() > 0
				}
			}
		}
	}
	maps.DeleteFunc(names, func(_ corev1.ResourceName, positive bool) bool { return !positive })
	return slices.Sorted(maps.Keys(names))
}

// soleContainer returns the container that requests the resource. ok is false if several do, or the
// pod as a whole.
func soleContainer(pod *corev1.Pod, name corev1.ResourceName) (c *corev1.Container, ok bool) {
	if pod.Spec.Resources != nil {
		return nil, false
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if amount := requestOf(&containers[i], name); amount.Sign() <= 0 {
				continue
			}
			if c != nil {
				return nil, false
			}
			c = &containers[i]
		}
	}
	return c, c != nil
}

// maxAnnotations bounds the annotations that may be requests.
const maxAnnotations = 16

// annotations returns the annotations whose values are amounts, in order of key. Whether a policy
// reads them as a request shows only when the pod fits with less.
func (s *search) annotations() (all []request) {
	for _, key := range slices.Sorted(maps.Keys(s.pod.Annotations)) {
		amount, err := fields.ParseQuantity(s.pod.Annotations[key])
		if err != nil || amount.Sign() <= 0 || len(all) == maxAnnotations {
			continue
		}
		r := request{search: s, annotation: key, amount: amount, unit: 1}
		if amount.CmpInt64(1<<20) >= 0 { // bytes
			r.unit = 1 << 20
		}
		all = append(all, r)
	}
	return all
}

// request is the search for an amount of one resource.
type request struct {
	*search
	name       corev1.ResourceName
	container  *corev1.Container
	annotation string // or the resource has a name, and a container
	amount     resource.Quantity
	unit       int64 // the step between two amounts: of thousandths for cpu, else of the resource
	from       int64 // in units, rounded up
}

// unitOf returns the step between two amounts: 1m of CPU, 1Mi of memory and storage, one huge page,
// and one of any other resource; 0 for huge pages of other sizes than those of amd64.
func unitOf(name corev1.ResourceName) int64 {
	switch {
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage:
		return 1 << 20
	case name == corev1.ResourceHugePagesPrefix+"2Mi":
		return 2 << 20
	case name == corev1.ResourceHugePagesPrefix+"1Gi":
		return 1 << 30
	case strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return 0
	}
	return 1
}

// requestOf returns how much of the resource the container requests. One that sets only a limit
// requests as much.
func requestOf(c *corev1.Container, name corev1.ResourceName) resource.Quantity {
	if amount, ok := c.Resources.Requests[name]; ok {
		return amount
	}
	return c.Resources.Limits[name]
}

// units returns the requested amount in units, rounded up.
func (r *request) units() int64 {
	amount := r.amount.Value()
	if r.name == corev1.ResourceCPU {
		if amount = math.MaxInt64; r.amount.CmpInt64(amount/1000) <= 0 {
			amount = r.amount.MilliValue()
		}
	}
	return (min(amount, math.MaxInt64-r.unit+1) + r.unit - 1) / r.unit
}

func (r *request) quantity(units int64) *resource.Quantity {
	switch {
	case r.name == corev1.ResourceCPU:
		return resource.NewMilliQuantity(units, resource.DecimalSI)
	case r.unit > 1:
		return resource.NewQuantity(units*r.unit, resource.BinarySI)
	}
	return resource.NewQuantity(units, resource.DecimalSI)
}

// with returns the pod with this amount in the annotation, or in the requests of the container, and
// in its limits if they have the resource and it is not one of which a container may request less
// than its limit.
func (r *request) with(units int64) *corev1.Pod {
	pod := r.pod.DeepCopy()
	if r.annotation != "" {
		pod.Annotations[r.annotation] = annotated(r.quantity(units))
		return pod
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if containers[i].Name != r.container.Name {
				continue
			}
			list := &containers[i].Resources
			if list.Requests == nil {
				list.Requests = corev1.ResourceList{}
			}
			list.Requests[r.name] = *r.quantity(units)
			if _, limited := list.Limits[r.name]; limited && !overcommits(r.name) {
				list.Limits[r.name] = *r.quantity(units)
			}
		}
	}
	return pod
}

// overcommits reports whether a container may request less of the resource than its limit.
func overcommits(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}

// largest returns the largest amount with which the pod fits, or nil if it found none: it halves the
// request until the pod fits, and then searches between the last two amounts.
func (r *request) largest() (*Remedy, error) {
	cannot, fits, node, complete := r.from, int64(0), "", true
	for units := r.from / 2; units > 0 && fits == 0 && complete; units /= 2 {
		n, all, err := r.fitsWith(units)
		if err != nil {
			return nil, err
		}
		if complete = all; n != "" {
			fits, node = units, n
		} else if all {
			cannot = units
		}
	}
	if fits == 0 {
		return nil, nil
	}
	for cannot-fits > 1 && complete {
		middle := fits + (cannot-fits)/2
		n, all, err := r.fitsWith(middle)
		if err != nil {
			return nil, err
		}
		if complete = all; n != "" {
			fits, node = middle, n
		} else if all {
			cannot = middle
		}
	}
	found := &Remedy{Kind: Request, Node: node, From: &r.amount, To: r.quantity(fits)}
	if found.Annotation = r.annotation; r.annotation == "" {
		found.Resource, found.Container, found.Unit = r.name, r.container.Name, UnitOf(r.Engine, r.name)
	}
	if complete && cannot < r.from {
		found.Next = r.quantity(cannot)
	}
	return found, nil
}

// fitsWith returns the first node on which the pod fits with this amount, or "". complete is false
// if the budget ended before.
func (r *request) fitsWith(units int64) (first string, complete bool, err error) {
	if !r.spend(r.prepare) {
		return "", false, nil
	}
	t, err := r.try(r.Engine, r.with(units), r.View)
	if err != nil && r.annotation != "" && r.ctx.Err() == nil {
		return "", true, nil // a limit below the request, for example
	} else if err != nil {
		return "", false, err
	}
	n, complete, err := r.fitsAny(t, r.selected)
	if err != nil || n == nil {
		return "", complete, err
	}
	return n.Name, true, nil
}

// UnitOf returns what the amounts of the resource count by a policy that allocates it, such as GiB,
// or "".
func UnitOf(e *engine.Engine, name corev1.ResourceName) string {
	var none snapshot.Builder
	for _, p := range e.Policies() {
		if lister, ok := p.Policy.(policy.UnitLister); ok {
			if list := lister.Units(none.View()); list.Resource == name && list.Unit != "" {
				return list.Unit
			}
		}
	}
	return ""
}
