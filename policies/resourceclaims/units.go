package resourceclaims

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// gib is the unit of the amounts of units.
const gib = 1 << 30

// Units implements policy.UnitLister: the devices of the driver, or the sets of counters from which
// partitions are cut, with their memory. A unit without memory is one that is used or not.
func (p *resourceClaims) Units(view *snapshot.View) policy.UnitList {
	driver := p.config.ScoringStrategy.Driver
	list := policy.UnitList{Resource: corev1.ResourceName(driver), Title: "Devices of " + driver, Unit: "GiB"}
	for n := range view.All() {
		if units := p.listed.Of(n); len(units.Units) > 0 {
			list.Nodes = append(list.Nodes, *units)
		}
	}
	return list
}

// list describes the units of the driver on the node.
func (p *resourceClaims) list(n *snapshot.Node) policy.NodeUnits {
	listed, pools, pods := policy.NodeUnits{Node: n.Name}, p.poolsOf(n), podsOfClaims(n)
	h := hardwareOf(pools)
	if len(h.devices) > 0 {
		listed.Group = p.modelOf(h.devices[0])
	}
	for _, own := range h.units {
		size, used := own.memory()
		u := policy.Unit{Name: own.name, Capacity: gibOf(size), Used: gibOf(used)}
		if len(pools) > 1 {
			u.Name = own.pool + "/" + own.name
		}
		u.Unhealthy = !own.counters && h.byID[own.id].tainted()
		for _, a := range own.held {
			claim := types.NamespacedName{Namespace: a.Claim.Namespace, Name: a.Claim.Name}
			amount := cmp.Or(h.memoryFrom(own, a.Result), u.Capacity)
			u.Holders = append(u.Holders, policy.UnitHolder{Pod: pods[claim], Claim: claim, Amount: amount})
		}
		listed.Units = append(listed.Units, u)
	}
	return listed
}

// memoryFrom returns how much memory of the unit the result has, or 0 if it has the whole unit.
func (h *hardware) memoryFrom(u *unit, r *resourcev1.DeviceRequestAllocationResult) int64 {
	for _, consumes := range h.deviceOf(r).ConsumesCounters {
		if memory, ok := memoryIn(consumes.Counters, r.Driver); ok && consumes.CounterSet == u.name {
			return gibOf(memory.Value.Value())
		}
	}
	return gibOf(consumed(r))
}

// podsOfClaims returns which pod of the node has which claim.
func podsOfClaims(n *snapshot.Node) map[types.NamespacedName]types.UID {
	pods := map[types.NamespacedName]types.UID{}
	for _, pod := range n.Pods {
		for i := range pod.Spec.ResourceClaims {
			if name, _ := snapshot.ClaimName(pod, &pod.Spec.ResourceClaims[i]); name != "" {
				pods[types.NamespacedName{Namespace: pod.Namespace, Name: name}] = pod.UID
			}
		}
	}
	return pods
}

// gibOf returns the bytes in GiB, rounded up.
func gibOf(bytes int64) int64 { return (max(0, bytes) + gib - 1) / gib }
