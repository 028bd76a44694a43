package resourceclaims

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
	listed := policy.NodeUnits{Node: n.Name}
	var pools []snapshot.DevicePool
	for _, pool := range n.DevicePools() {
		if pool.Driver == p.config.ScoringStrategy.Driver {
			pools = append(pools, pool)
			for _, s := range pool.Slices {
				for i := range s.Spec.Devices {
					listed.Group = p.modelOf(&s.Spec.Devices[i])
				}
			}
		}
	}
	h, pods := hardwareOf(pools), podsOfClaims(n)
	for _, own := range h.units {
		u := policy.Unit{Name: own.name, Capacity: max(1, memoryOf(own.capacity, own.driver))}
		if len(pools) > 1 {
			u.Name = own.pool + "/" + own.name
		}
		if device := h.devices[deviceID{own.driver, own.pool, own.name}]; device != nil {
			u.Unhealthy = !own.counters && ownDevice{Device: device}.tainted()
		}
		switch {
		case own.taken:
			u.Used = u.Capacity
		case memoryOf(own.capacity, own.driver) > 0:
			u.Used = memoryOf(own.allocated, own.driver)
		case len(own.allocated) > 0:
			u.Used = 1
		}
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
	for _, consumes := range h.devices[deviceID{r.Driver, r.Pool, r.Device}].ConsumesCounters {
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

// memoryOf returns the memory of the amounts in GiB, rounded up.
func memoryOf(amounts map[string]resource.Quantity, driver string) int64 {
	amount, _ := memoryIn(amounts, driver)
	return gibOf(amount.Value())
}

func gibOf(bytes int64) int64 { return (max(0, bytes) + gib - 1) / gib }
