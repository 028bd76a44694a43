package resourceclaims

import (
	"math"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/snapshot"
)

// whole is all of a unit.
const whole = 1000

// unitKey identifies what claims share out: a set of counters from which devices are cut, such as a
// GPU that is divided into partitions, or a device that consumes no counters.
type unitKey struct {
	driver, pool, name string
	counters           bool
}

// unit is what a node has of one unit, and what of it is allocated.
type unit struct {
	unitKey
	// capacity and allocated are by counter, or by capacity. allocated is nil if nothing is.
	capacity, allocated map[string]resource.Quantity
	taken               bool                        // as a whole
	held                []snapshot.DeviceAllocation // by claims
}

// deviceID identifies a device of a node.
type deviceID struct{ driver, pool, name string }

// hardware are the units of a node, and the devices that use them.
type hardware struct {
	units   []*unit
	of      map[unitKey]*unit
	devices map[deviceID]*resourcev1.Device
	cut     map[deviceID]bool // the devices with counters that are allocated
}

// hardwareOf returns the units of the pools, with what is allocated of them.
func hardwareOf(pools []snapshot.DevicePool) *hardware {
	h := &hardware{
		of: map[unitKey]*unit{}, devices: map[deviceID]*resourcev1.Device{}, cut: map[deviceID]bool{},
	}
	for i := range pools {
		for _, s := range pools[i].Slices {
			h.add(&pools[i], s)
		}
	}
	for i := range pools {
		for _, a := range pools[i].Allocated {
			for _, u := range h.allocate(a.Result) {
				u.held = append(u.held, a)
			}
		}
	}
	return h
}

// add adds what a slice of the pool has.
func (h *hardware) add(pool *snapshot.DevicePool, s *resourcev1.ResourceSlice) {
	for i := range s.Spec.SharedCounters {
		set := &s.Spec.SharedCounters[i]
		u := h.addUnit(unitKey{pool.Driver, pool.Name, set.Name, true}, len(set.Counters))
		for name, counter := range set.Counters {
			u.capacity[name] = counter.Value
		}
	}
	for i := range s.Spec.Devices {
		device := &s.Spec.Devices[i]
		h.devices[deviceID{pool.Driver, pool.Name, device.Name}] = device
		if len(device.ConsumesCounters) > 0 {
			continue
		}
		u := h.addUnit(unitKey{pool.Driver, pool.Name, device.Name, false}, len(device.Capacity))
		for name, capacity := range device.Capacity {
			u.capacity[string(name)] = capacity.Value
		}
	}
}

func (h *hardware) addUnit(key unitKey, capacities int) *unit {
	u := &unit{unitKey: key, capacity: make(map[string]resource.Quantity, capacities)}
	h.units = append(h.units, u)
	h.of[key] = u
	return u
}

// allocate allocates what the result has, a device with counters only once, and returns the units.
func (h *hardware) allocate(r *resourcev1.DeviceRequestAllocationResult) []*unit {
	id := deviceID{r.Driver, r.Pool, r.Device}
	device := h.devices[id]
	if device == nil || isAdmin(r) {
		return nil
	}
	units := h.unitsOf(id, device)
	switch {
	case len(device.ConsumesCounters) == 0 && r.ShareID == nil:
		units[0].taken = true
	case len(device.ConsumesCounters) == 0:
		for name, amount := range r.ConsumedCapacity {
			units[0].add(string(name), amount)
		}
	case !h.cut[id]:
		h.cut[id] = true
		for i, u := range units {
			for name, counter := range device.ConsumesCounters[i].Counters {
				u.add(name, counter.Value)
			}
		}
	}
	return units
}

// unitsOf returns the units of which the device consists, in the order of its counters. A set of
// counters that does not exist is an empty unit.
func (h *hardware) unitsOf(id deviceID, d *resourcev1.Device) []*unit {
	if len(d.ConsumesCounters) == 0 {
		return []*unit{h.of[unitKey{id.driver, id.pool, id.name, false}]}
	}
	units := make([]*unit, len(d.ConsumesCounters))
	for i := range units {
		key := unitKey{id.driver, id.pool, d.ConsumesCounters[i].CounterSet, true}
		if units[i] = h.of[key]; units[i] == nil {
			units[i] = new(unit)
		}
	}
	return units
}

func (u *unit) add(name string, amount resource.Quantity) {
	if u.allocated == nil {
		u.allocated = map[string]resource.Quantity{}
	}
	sum := u.allocated[name].DeepCopy()
	sum.Add(amount)
	u.allocated[name] = sum
}

// free returns how much is left of a capacity or counter.
func (u *unit) free(name string) resource.Quantity {
	left := u.capacity[name].DeepCopy()
	left.Sub(u.allocated[name])
	return left
}

// used returns how much of the unit is allocated, in thousandths: the maximum over its capacities,
// each of which a claim needs, or the mean of its counters, many of which stand for one part of the
// unit each.
func (u *unit) used() int64 {
	if u.taken {
		return whole
	}
	most, sum := int64(0), int64(0)
	for name, capacity := range u.capacity {
		if amount := u.allocated[name]; capacity.Sign() > 0 {
			share := int64(math.Round(min(1, amount.AsApproximateFloat64()/capacity.AsApproximateFloat64()) * whole))
			most, sum = max(most, share), sum+share
		}
	}
	if u.counters {
		return sum / int64(max(1, len(u.capacity)))
	}
	return most
}

// isAdmin reports whether the result is administrative access, which uses nothing of the device.
func isAdmin(r *resourcev1.DeviceRequestAllocationResult) bool {
	return r.AdminAccess != nil && *r.AdminAccess
}

// isShared reports whether several claims can have parts of the device.
func isShared(d *resourcev1.Device) bool {
	return d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
}

// memoryCapacity is the capacity of which claims request shares.
const memoryCapacity = "memory"

// memoryIn returns the memory among capacities or counters, whose names may begin with that of the
// driver.
func memoryIn[K ~string, V any](of map[K]V, driver string) (memory V, ok bool) {
	if memory, ok = of[memoryCapacity]; !ok {
		memory, ok = of[K(driver+"/"+memoryCapacity)]
	}
	return memory, ok
}

// usageWith returns how much of the units of the results' drivers is used once the results are
// allocated in addition, in thousandths of a unit.
func usageWith(n *snapshot.Node, results []*resourcev1.DeviceRequestAllocationResult) (used, capacity int64) {
	drivers, h := map[string]bool{}, hardwareOf(n.DevicePools())
	for _, r := range results {
		drivers[r.Driver] = true
		h.allocate(r)
	}
	for _, u := range h.units {
		if drivers[u.driver] {
			used, capacity = used+u.used(), capacity+whole
		}
	}
	return used, capacity
}
