package clustermetrics

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/internal/ledger/audit"
	"outboard.dev/outboard/internal/pending"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// unallocated are the pods on nodes that lack an allocation that their profile requires: something
// else than Outboard bound them.
type unallocated struct {
	config      *config.Config       // with which the pods were found
	seen        map[types.UID]string // the resource of each, in the latest pass
	known       map[types.UID]bool   // those that are not new
	confirmed   map[string]int       // pods that two passes have seen, by resource; 0 if there are none any more
	unconfirmed bool                 // the latest pass has seen pods that the one before has not
}

// pass finds the pods of the view. It returns how many of them two passes have now seen, and none
// before. The pods of the first pass, and of the first with another configuration, do not count:
// nobody knows when they were bound, or whether they needed an allocation then.
func (u *unallocated) pass(c *config.Config, view *snapshot.View) (bindings int) {
	now, first := withoutAllocation(c, view), u.config != c
	confirmed, known := map[string]int{}, map[types.UID]bool{}
	for resource := range u.confirmed {
		confirmed[resource] = 0
	}
	u.unconfirmed = false
	for uid, resource := range now {
		known[uid] = first || u.known[uid]
		if u.seen[uid] == "" {
			u.unconfirmed = true
			continue
		}
		confirmed[resource]++
		if !known[uid] {
			known[uid] = true
			bindings++
		}
	}
	u.config, u.seen, u.known, u.confirmed = c, now, known, confirmed
	return bindings
}

// withoutAllocation returns the bound pods that lack an allocation, with its resource.
func withoutAllocation(c *config.Config, view *snapshot.View) map[types.UID]string {
	lacking := map[types.UID]string{}
	for n := range view.All() {
		for _, pod := range n.Pods {
			pending.EachLacking(c, view, n, pod, func(resource string) { lacking[pod.UID] = resource })
		}
	}
	return lacking
}

// auditInput returns the caches as an audit reads them.
func auditInput(c *config.Config, view *snapshot.View, pods []*corev1.Pod, ledgers []*ledger.Object, now time.Time) audit.Input {
	in := audit.Input{Ledgers: ledgers, Pods: pods, Now: now, Grace: 2 * c.Ledgers.ReclaimAfter, Units: GPUs(c, view)}
	for n := range view.All() {
		in.Nodes = append(in.Nodes, n.Object)
	}
	return in
}

// GPUs returns the GPUs of the view as the policies count them. The audit, which shares no code with
// policies, needs it to know the sizes of GPUs.
func GPUs(c *config.Config, view *snapshot.View) (all []policy.UnitList) {
	for i := range c.Profiles {
		for _, q := range c.Profiles[i].Policies {
			if lister, ok := q.Policy.(policy.UnitLister); ok && q.Type == "GPUMemory" {
				all = append(all, lister.Units(view))
			}
		}
	}
	return all
}
