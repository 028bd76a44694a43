package resourceclaims

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// gib is the unit of the amounts of units.
const gib = 1 << 30

// Units implements policy.UnitLister: the devices of the driver, or the sets of counters from which partitions are cut, with their memory. A
// unit without memory is one that is used or not.
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
		}
	}
	if len(pools) == 0 {
		return listed
	}
	h, index := hardwareOf(pools), map[unitKey]int{}
	h.allocate(allocated(pools))
	for i, key := range h.units {
		u := policy.Unit{Name: key.name, Capacity: 1}
		if len(pools) > 1 {
			u.Name = key.pool + "/" + key.name
		}
		if memory := memoryOf(h.of[key].capacity, key.driver); memory > 0 {
			u.Capacity = memory
		}
		if device := h.devices[deviceID{key.driver, key.pool, key.name}]; device != nil {
			listed.Group = p.modelOf(device)
			u.Unhealthy = !key.counters && ownDevice{Device: device}.tainted()
		}
		index[key] = i
		listed.Units = append(listed.Units, u)
	}
	if listed.Group == "" { // there are only partitions
		for _, s := range pools[0].Slices {
			for i := range s.Spec.Devices {
				listed.Group = p.modelOf(&s.Spec.Devices[i])
			}
		}
	}
	pods := podsOfClaims(n)
	for i := range pools {
		for _, a := range pools[i].Allocated {
			h.hold(&listed, index, a, pods[types.NamespacedName{Namespace: a.Claim.Namespace, Name: a.Claim.Name}])
		}
	}
	for i, key := range h.units {
		u, unit := &listed.Units[i], h.of[key]
		switch {
		case unit.taken:
			u.Used = u.Capacity
		case memoryOf(unit.capacity, key.driver) > 0:
			u.Used = memoryOf(unit.allocated, key.driver)
		case len(unit.allocated) > 0:
			u.Used = 1
		}
	}
	return listed
}

// hold adds the holder of what is allocated.
func (h *hardware) hold(listed *policy.NodeUnits, index map[unitKey]int, a snapshot.DeviceAllocation, pod types.UID) {
	r := a.Result
	device := h.devices[deviceID{r.Driver, r.Pool, r.Device}]
	if device == nil || isAdmin(r) {
		return
	}
	add := func(key unitKey, amount int64) {
		if i, known := index[key]; known {
			u := &listed.Units[i]
			if amount == 0 {
				amount = u.Capacity
			}
			u.Holders = append(u.Holders, policy.UnitHolder{Pod: pod, Claim: types.NamespacedName{Namespace: a.Claim.Namespace, Name: a.Claim.Name}, Amount: amount})
		}
	}
	for _, consumes := range device.ConsumesCounters {
		amounts := make(map[string]resource.Quantity, len(consumes.Counters))
		for name, counter := range consumes.Counters {
			amounts[name] = counter.Value
		}
		add(unitKey{r.Driver, r.Pool, consumes.CounterSet, true}, memoryOf(amounts, r.Driver))
	}
	if len(device.ConsumesCounters) == 0 {
		add(unitKey{r.Driver, r.Pool, r.Device, false}, gibOf(consumed(r)))
	}
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
