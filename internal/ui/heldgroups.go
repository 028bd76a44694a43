package ui

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// groups returns the sums of the rows, which are of one resource with this capacity, by namespace or
// owner, the largest first.
func groups(rows []*HeldRow, by string, capacity int64) (sums []HeldGroup) {
	type pod struct{ name, uid string }
	byName, counted := map[string]*HeldGroup{}, map[pod]bool{}
	for _, r := range rows {
		name := r.Namespace
		if by == "owner" {
			name = r.Owner
		}
		g := byName[name]
		if g == nil {
			g = &HeldGroup{Name: name, Resource: r.Resource, Capacity: capacity}
			byName[name] = g
		}
		g.Amount += r.Amount
		if p := (pod{name, r.UID}); !counted[p] {
			counted[p] = true
			g.Pods++
		}
	}
	for _, g := range byName {
		sums = append(sums, *g)
	}
	slices.SortFunc(sums, func(a, b HeldGroup) int { return cmp.Or(cmp.Compare(b.Amount, a.Amount), cmp.Compare(a.Name, b.Name)) })
	return sums
}

// capacityOf returns how much there is of the resource, or of the pool of a resource.
func (h *holders) capacityOf(resource string, view *snapshot.View) (capacity int64) {
	known := map[string]bool{} // two policies may allocate the same units
	for lister := range listers(h.config) {
		list := lister.Units(view)
		pool, ok := strings.CutPrefix(resource+"/", string(list.Resource)+"/")
		for i := 0; ok && i < len(list.Nodes); i++ {
			if n := &list.Nodes[i]; !known[n.Node] && (pool == "" || pool == n.Node+"/") {
				known[n.Node] = true
				for j := range n.Units {
					capacity += n.Units[j].Capacity
				}
			}
		}
	}
	return capacity
}

// annotate sets the annotations of the pod that say what its allocation is.
func (r *HeldRow) annotate(pod *corev1.Pod, allocation *snapshot.LedgerPod) {
	amount := strconv.FormatInt(r.Amount, 10)
	for key := range allocation.Annotations {
		if value := pod.Annotations[key]; value == amount || slices.Contains(strings.Split(value, ","), r.Unit) {
			r.Annotations = append(r.Annotations, key+": "+value)
		}
	}
	slices.Sort(r.Annotations)
}
