package resourceclaims

import (
	"math"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/snapshot"
)

// whole is all of a unit.
const whole = 1000

// unit is what claims share out, and what of it is allocated: a set of counters from which devices
// are cut, such as a GPU that is divided into partitions, or a device that consumes no counters.
type unit struct {
	id
	counters bool // it is a set of counters
	// capacity and allocated are by counter, or by capacity. allocated is nil if nothing is.
	capacity, allocated map[string]resource.Quantity
	taken               bool                        // as a whole
	held                []snapshot.DeviceAllocation // by claims
}

// id identifies a device, or a set of counters, of a node.
type id struct{ driver, pool, name string }

// device is a device of a node. Invariant: it is allocated by its units. One without counters is a
// unit, and the only one that it has.
type device struct {
	*resourcev1.Device
	id
	units []*unit // in the order of its counters; empty ones for sets that do not exist
	cut   bool    // it has counters, and is allocated
}

// hardware are the devices of a node, in the order in which kube-scheduler tries them, and the
// units that they use.
type hardware struct {
	units   []*unit
	devices []*device
	byID    map[id]*device
}

// hardwareOf returns the hardware of the pools, with what is allocated of it.
func hardwareOf(pools []snapshot.DevicePool) *hardware {
	h := emptyHardware(pools)
	for i := range pools {
		for _, a := range pools[i].Allocated {
			for _, u := range h.allocate(a.Result) {
				u.held = append(u.held, a)
			}
		}
	}
	return h
}

// emptyHardware returns the hardware of the pools, as if nothing of it were allocated.
func emptyHardware(pools []snapshot.DevicePool) *hardware {
	h := &hardware{byID: map[id]*device{}}
	for i := range pools {
		pool, sets := &pools[i], map[string]*unit{}
		for _, s := range pool.Slices {
			for j := range s.Spec.SharedCounters {
				set := &s.Spec.SharedCounters[j]
				u := h.addUnit(id{pool.Driver, pool.Name, set.Name}, len(set.Counters))
				u.counters, sets[set.Name] = true, u
				for name, counter := range set.Counters {
					u.capacity[name] = counter.Value
				}
			}
		}
		for _, s := range pool.Slices {
			for j := range s.Spec.Devices {
				h.addDevice(&s.Spec.Devices[j], pool, sets)
			}
		}
	}
	return h
}

func (h *hardware) addUnit(of id, capacities int) *unit {
	u := &unit{id: of, capacity: make(map[string]resource.Quantity, capacities)}
	h.units = append(h.units, u)
	return u
}

func (h *hardware) addDevice(of *resourcev1.Device, pool *snapshot.DevicePool, sets map[string]*unit) {
	d := &device{Device: of, id: id{pool.Driver, pool.Name, of.Name}}
	h.devices = append(h.devices, d)
	h.byID[d.id] = d
	for i := range of.ConsumesCounters {
		u := sets[of.ConsumesCounters[i].CounterSet]
		if u == nil {
			u = new(unit)
		}
		d.units = append(d.units, u)
	}
	if len(d.units) > 0 {
		return
	}
	u := h.addUnit(d.id, len(of.Capacity))
	for name, capacity := range of.Capacity {
		u.capacity[string(name)] = capacity.Value
	}
	d.units = []*unit{u}
}

// deviceOf returns the device of which the result has something, or nil: administrative access uses
// nothing of a device, and one may exist no more.
func (h *hardware) deviceOf(r *resourcev1.DeviceRequestAllocationResult) *device {
	if isAdmin(r) {
		return nil
	}
	return h.byID[id{r.Driver, r.Pool, r.Device}]
}

// allocate allocates what the result has, a device with counters only once, and returns the units.
func (h *hardware) allocate(r *resourcev1.DeviceRequestAllocationResult) []*unit {
	d := h.deviceOf(r)
	switch {
	case d == nil:
		return nil
	case len(d.ConsumesCounters) == 0 && r.ShareID == nil:
		d.units[0].taken = true
	case len(d.ConsumesCounters) == 0:
		for name, amount := range r.ConsumedCapacity {
			d.units[0].add(string(name), amount)
		}
	case !d.cut:
		d.cut = true
		for i, u := range d.units {
			for name, counter := range d.ConsumesCounters[i].Counters {
				u.add(name, counter.Value)
			}
		}
	}
	return d.units
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

// memory returns how much memory the unit has, and how much of it is allocated. A unit without
// memory has 1, of which all or nothing is allocated.
func (u *unit) memory() (size, used int64) {
	capacity, _ := memoryIn(u.capacity, u.driver)
	allocated, _ := memoryIn(u.allocated, u.driver)
	size = max(1, capacity.Value())
	switch {
	case !u.taken && allocated.Sign() > 0:
		return size, allocated.Value()
	case u.taken || len(u.held) > 0 && capacity.Sign() <= 0:
		return size, size
	}
	return size, 0
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

// tainted reports whether usual claims, which tolerate no taint, cannot have the device.
func (d *device) tainted() bool {
	return slices.ContainsFunc(d.Taints, func(t resourcev1.DeviceTaint) bool { return t.Effect != resourcev1.DeviceTaintEffectNone })
}

// shared reports whether several claims can have parts of the device.
func (d *device) shared() bool {
	return d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
}

// isAdmin reports whether the result is administrative access.
func isAdmin(r *resourcev1.DeviceRequestAllocationResult) bool {
	return r.AdminAccess != nil && *r.AdminAccess
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
