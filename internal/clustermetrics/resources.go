package clustermetrics

import (
	"cmp"
	"maps"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/snapshot"
)

const (
	// maxNamespaces is how many namespaces the metrics name for each resource. The others are one,
	// which no namespace can be named.
	maxNamespaces   = 20
	otherNamespaces = "(other)"
	// maxResources bounds the resources: whoever may create ledgers chooses their names.
	maxResources = 100
)

// resource is how much there is of a resource, who has it, and how much of the rest is too little
// for a pod. The amounts are in the resource's unit.
type resource struct {
	capacity  int64
	allocated map[string]int64 // by namespace
	unusable  float64

	units   []unit
	amounts []int64 // of the allocations
}

// unit is what a ledger says of one unit.
type unit struct{ capacity, free int64 }

// resourcesOf returns the resources that the profiles allocate, and those of the ledgers.
func resourcesOf(c *config.Config, view *snapshot.View) map[string]*resource {
	counted, all := countedByNodes(c), map[string]*resource{}
	of := func(name string) *resource {
		if all[name] == nil && len(all) < maxResources {
			all[name] = &resource{allocated: map[string]int64{}}
		}
		return all[name]
	}
	for n := range view.All() {
		for _, name := range counted {
			capacity := n.Object.Status.Allocatable[name]
			if capacity.Sign() <= 0 {
				continue
			}
			r := of(string(name))
			if r == nil {
				continue
			}
			r.capacity = snapshot.AddAmounts(r.capacity, capacity.Value())
			for _, pod := range n.Pods {
				if amount := snapshot.ExtendedResourceRequest(pod, name); amount > 0 {
					r.allocate(pod.Namespace, amount)
				}
			}
		}
		for _, l := range n.Ledgers {
			if r := of(l.Resource); r != nil {
				r.add(l, slices.Contains(counted, corev1.ResourceName(l.Resource)))
			}
		}
	}
	for l := range view.Pools() {
		if r := of(l.Resource); r != nil {
			r.add(l, false)
		}
	}
	for _, r := range all {
		r.finish()
	}
	return all
}

// countedByNodes returns the resources of the profiles, of which nodes say how much they have.
func countedByNodes(c *config.Config) []corev1.ResourceName {
	names := map[corev1.ResourceName]bool{}
	for i := range c.Profiles {
		for _, r := range c.Profiles[i].AllocatedResources() {
			names[r.Name] = true
		}
		for _, m := range c.Profiles[i].ManagedResources {
			names[corev1.ResourceName(m.Name)] = true
		}
	}
	sorted := slices.Sorted(maps.Keys(names))
	return sorted[:min(len(sorted), maxResources)]
}

func (r *resource) allocate(namespace string, amount int64) {
	r.allocated[namespace] = snapshot.AddAmounts(r.allocated[namespace], amount)
}

// add adds a ledger. counted: its node has said how much there is, and its pods how much they have.
func (r *resource) add(l *snapshot.Ledger, counted bool) {
	for i := range l.Units {
		u := &l.Units[i]
		r.units = append(r.units, unit{u.Capacity, max(0, u.Capacity-u.Used())})
		for _, allocation := range u.Allocations {
			r.amounts = append(r.amounts, allocation.Amount)
			if counted {
				continue
			}
			if p := l.Pod(allocation.Pod); p != nil {
				r.allocate(p.Namespace, allocation.Amount)
			}
		}
		if !counted {
			r.capacity = snapshot.AddAmounts(r.capacity, u.Capacity)
		}
	}
}

// finish computes what the sums do not say.
func (r *resource) finish() {
	r.unusable = unusable(r.units, r.amounts)
	if len(r.allocated) <= maxNamespaces {
		return
	}
	byAmount := slices.SortedFunc(maps.Keys(r.allocated), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.allocated[b], r.allocated[a]), cmp.Compare(a, b))
	})
	for _, namespace := range byAmount[maxNamespaces:] {
		r.allocate(otherNamespaces, r.allocated[namespace])
		delete(r.allocated, namespace)
	}
}

// unusable returns how much of what is free a pod cannot use that is as large as one of the
// allocations, on average over the allocations, because other pods on the same units have left too
// little. Units that are too small for an allocation even when empty do not count for it.
func unusable(units []unit, amounts []int64) float64 {
	slices.Sort(amounts)
	upTo := func(amount int64) int {
		return sort.Search(len(amounts), func(i int) bool { return amounts[i] > amount })
	}
	var sum float64
	for _, u := range units {
		if n := upTo(u.capacity) - upTo(u.free); n > 0 {
			sum += float64(u.free) * float64(n) / float64(len(amounts))
		}
	}
	return sum
}
