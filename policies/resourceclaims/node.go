package resourceclaims

import (
	"math"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/snapshot"
)

// whole is all of a unit.
const whole = 1000

// unitKey identifies what claims share out: a set of counters from which devices are cut, such as a GPU that is divided into partitions,
// or a device that consumes no counters.
type unitKey struct {
	driver, pool, name string
	counters           bool
}

// unit is what a node has of one unit, and what of it is allocated.
type unit struct {
	capacity, allocated map[string]resource.Quantity // by counter, or by capacity; the latter is nil if nothing is allocated
	taken               bool                         // as a whole
}

// deviceID identifies a device of a node.
type deviceID struct{ driver, pool, name string }

// hardware are the units of a node, and the devices that use them.
type hardware struct {
	units   []unitKey
	of      map[unitKey]*unit
	devices map[deviceID]*resourcev1.Device
}

// hardwareOf returns what the node has, with nothing allocated.
func hardwareOf(pools []snapshot.DevicePool) *hardware {
	h := &hardware{of: map[unitKey]*unit{}, devices: map[deviceID]*resourcev1.Device{}}
	for _, pool := range pools {
		for _, s := range pool.Slices {
			for i := range s.Spec.SharedCounters {
				set := &s.Spec.SharedCounters[i]
				u := &unit{capacity: make(map[string]resource.Quantity, len(set.Counters))}
				for name, counter := range set.Counters {
					u.capacity[name] = counter.Value
				}
				h.add(unitKey{pool.Driver, pool.Name, set.Name, true}, u)
			}
			for i := range s.Spec.Devices {
				device := &s.Spec.Devices[i]
				h.devices[deviceID{pool.Driver, pool.Name, device.Name}] = device
				if len(device.ConsumesCounters) > 0 {
					continue
				}
				u := &unit{capacity: make(map[string]resource.Quantity, len(device.Capacity))}
				for name, capacity := range device.Capacity {
					u.capacity[string(name)] = capacity.Value
				}
				h.add(unitKey{pool.Driver, pool.Name, device.Name, false}, u)
			}
		}
	}
	return h
}

func (h *hardware) add(key unitKey, u *unit) {
	h.units = append(h.units, key)
	h.of[key] = u
}

// allocate allocates what the results have, each device with counters only once.
func (h *hardware) allocate(results []*resourcev1.DeviceRequestAllocationResult) {
	partitions := map[deviceID]bool{}
	for _, r := range results {
		id := deviceID{r.Driver, r.Pool, r.Device}
		device := h.devices[id]
		switch {
		case device == nil || isAdmin(r) || partitions[id]:
		case len(device.ConsumesCounters) > 0:
			partitions[id] = true
			for _, consumed := range device.ConsumesCounters {
				if u := h.of[unitKey{r.Driver, r.Pool, consumed.CounterSet, true}]; u != nil {
					for name, counter := range consumed.Counters {
						u.add(name, counter.Value)
					}
				}
			}
		case r.ShareID == nil:
			h.of[unitKey{r.Driver, r.Pool, r.Device, false}].taken = true
		default:
			u := h.of[unitKey{r.Driver, r.Pool, r.Device, false}]
			for name, amount := range r.ConsumedCapacity {
				u.add(string(name), amount)
			}
		}
	}
}

func (u *unit) add(name string, amount resource.Quantity) {
	if u.allocated == nil {
		u.allocated = map[string]resource.Quantity{}
	}
	sum := u.allocated[name].DeepCopy()
	sum.Add(amount)
	u.allocated[name] = sum
}

// used returns how much of the unit is allocated, in thousandths: the maximum over its capacities, each of which a claim needs, or the
// mean of its counters, many of which stand for one part of the unit each.
func (u *unit) used(counters bool) int64 {
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
	if counters {
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

// memoryIn returns the memory among capacities or counters, whose names may begin with that of the driver.
func memoryIn[K ~string, V any](of map[K]V, driver string) (memory V, ok bool) {
	if memory, ok = of[memoryCapacity]; !ok {
		memory, ok = of[K(driver+"/"+memoryCapacity)]
	}
	return memory, ok
}

// allocated returns what claims have of the node.
func allocated(pools []snapshot.DevicePool) []*resourcev1.DeviceRequestAllocationResult {
	var results []*resourcev1.DeviceRequestAllocationResult
	for _, pool := range pools {
		for _, a := range pool.Allocated {
			results = append(results, a.Result)
		}
	}
	return results
}

// usage is how much of the units of some drivers is allocated on a node, in thousandths of a unit.
type usage struct{ used, capacity int64 }

// usageWith returns the usage of the drivers' units once the results are allocated in addition.
func usageWith(n *snapshot.Node, results []*resourcev1.DeviceRequestAllocationResult) (u usage) {
	drivers := map[string]bool{}
	for _, r := range results {
		drivers[r.Driver] = true
	}
	h := hardwareOf(n.DevicePools())
	h.allocate(append(allocated(n.DevicePools()), results...))
	for _, key := range h.units {
		if drivers[key.driver] {
			u.used += h.of[key].used(key.counters)
			u.capacity += whole
		}
	}
	return u
}
