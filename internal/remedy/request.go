package remedy

import (
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// requests returns, for each resource that one container alone requests, the largest amount with
// which the pod fits. It evaluates no amount of 0: such a pod would not use the resource.
func (s *search) requests() ([]Remedy, error) {
	var all []Remedy
	names := requested(s.pod)
	budget := s.left / max(1, len(names))
	if budget < s.prepare {
		return nil, nil
	}
	for _, name := range names {
		c, ok := soleContainer(s.pod, name)
		if !ok || unitOf(name) == 0 {
			continue
		}
		s.left = budget
		r := request{search: s, name: name, container: c, unit: unitOf(name)}
		r.from = r.units()
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

// request is the search for an amount of one resource.
type request struct {
	*search
	name      corev1.ResourceName
	container *corev1.Container
	unit      int64 // the step between two amounts: of thousandths for cpu, else of the resource
	from      int64 // in units, rounded up
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
	from := requestOf(r.container, r.name)
	amount := from.Value()
	if r.name == corev1.ResourceCPU {
		if amount = math.MaxInt64; from.CmpInt64(amount/1000) <= 0 {
			amount = from.MilliValue()
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

// with returns the pod with this amount in the requests of the container, and in its limits if they
// have the resource and it is not one of which a container may request less than its limit.
func (r *request) with(units int64) *corev1.Pod {
	pod := r.pod.DeepCopy()
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

// largest bisects between an amount that fits and one that does not, and then tries the larger
// amounts, because policies need not accept less of everything that they accept.
func (r *request) largest() (*Remedy, error) {
	fits, node, err := r.someAmount()
	if err != nil {
		return nil, err
	}
	cannot := int64(0) // for all that is known, any amount may fit if none of those that were tried does
	if fits > 0 {
		cannot = r.from
	}
	for cannot-fits > 1 {
		middle := fits + (cannot-fits)/2
		n, complete, err := r.fitsWith(middle, r.selected)
		switch {
		case err != nil:
			return nil, err
		case n != "":
			fits, node = middle, n
		case complete:
			cannot = middle
		default:
			return r.remedy(fits, node, 0, false), nil
		}
	}
	return r.above(fits, node, cannot)
}

// someAmount returns an amount with which the pod fits, or 0: it halves the request until it fits.
func (r *request) someAmount() (units int64, node string, err error) {
	for units = r.from / 2; units > 0; units /= 2 {
		if node, _, err = r.fitsWith(units, r.selected); err != nil || node != "" {
			return units, node, err
		}
	}
	return 0, "", nil
}

// above tries the amounts above cannot, the largest one first, if there are not too many. The pod
// fits with the amount fits, unless it is 0. It leaves out nodes that lack the resource already
// with the amount cannot.
func (r *request) above(fits int64, node string, cannot int64) (*Remedy, error) {
	if !r.spend(r.prepare + r.each*len(r.selected)) {
		return r.remedy(fits, node, cannot, false), nil
	}
	var nodes []*snapshot.Node
	filters := kubescheduler.For(r.with(max(cannot, 1)), r.Ignored...).In(r.View)
	for _, n := range r.selected {
		if filters.Lacks(n) == "" {
			nodes = append(nodes, n)
		}
	}
	first := r.from - 1
	if len(nodes) == 0 {
		first = cannot
	}
	if first-cannot > int64(r.left/(r.prepare+r.each*len(nodes))) { // a product could overflow
		return r.remedy(fits, node, cannot, false), nil
	}
	for larger := first; larger > cannot; larger-- {
		if n, _, err := r.fitsWith(larger, nodes); err != nil {
			return nil, err
		} else if n != "" {
			return r.remedy(larger, n, larger+1, true), nil
		}
	}
	return r.remedy(fits, node, cannot, true), nil
}

// fitsWith returns the first of the nodes on which the pod fits with this amount, or "". complete
// is false if the budget ended before.
func (r *request) fitsWith(units int64, nodes []*snapshot.Node) (first string, complete bool, err error) {
	if !r.spend(r.prepare) {
		return "", false, nil
	}
	t, err := r.try(r.Engine, r.with(units), r.View)
	if err != nil {
		return "", false, err
	}
	n, complete, err := r.fitsAny(t, nodes)
	if err != nil || n == nil {
		return "", complete, err
	}
	return n.Name, true, nil
}

// remedy returns the remedy with this amount, or nil if it is 0. It does not fit with the amount
// cannot; 0: unknown.
func (r *request) remedy(fits int64, node string, cannot int64, smallest bool) *Remedy {
	if fits == 0 {
		return nil
	}
	from := requestOf(r.container, r.name)
	found := &Remedy{
		Kind: Request, Node: node, Resource: r.name, Container: r.container.Name, From: &from, To: r.quantity(fits), Unit: UnitOf(r.Engine, r.name), Smallest: smallest,
	}
	switch {
	case cannot >= r.from:
		found.Next = &from
	case cannot > 0:
		found.Next = r.quantity(cannot)
	}
	return found
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
