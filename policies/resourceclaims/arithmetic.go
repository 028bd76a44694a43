package resourceclaims

import (
	"math"
	"math/bits"
	"slices"
	"sync/atomic"

	resourcev1 "k8s.io/api/resource/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// This file predicts most allocations without the allocator, which takes about 50 µs for a node, and 350 µs if MIG divides its GPUs. The
// allocator says once, for each kind of device, whether a request can get such a device and how much of it. Then the first devices that have
// as much free, and whose counters do, are those that it would allocate. For all other nodes and requests, ok is false, and the allocator predicts.

const (
	// maxDevices and maxAmounts bound the devices of a node, and their capacities; maxDrivers those that publish them.
	maxDevices, maxAmounts, maxDrivers = 256, 64, 64
	// maxExact is the maximum amount. A float64 has no gaps up to here.
	maxExact = 1 << 53
)

// deviceSet is a set of devices of a node.
type deviceSet [maxDevices / 64]uint64

func (s *deviceSet) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s *deviceSet) has(i int) bool { return s[i/64]>>(i%64)&1 == 1 }

// nodeDevices are the devices of a node, in the order in which they are allocated. They are immutable, except that they keep their node types.
type nodeDevices struct {
	plain   bool      // all devices of the node are described
	taken   deviceSet // those that are allocated as a whole
	shared  deviceSet // those that can be allocated several times
	first   []uint8   // first[i] to first[i+1] are the amounts of device i
	amounts []amount  // of each device, its capacities in order of their names
	driver  []uint8   // of device i
	drivers []usage   // of all units of each driver

	counted *counted // what devices use of counters; nil: there are none
	used    []int64  // of the counters

	nodeTypes [keptSets]atomic.Pointer[kept]
}

// amount is how much of a capacity is allocated.
type amount struct{ used, size int64 }

// newNodeDevices describes the devices of the node; they are not plain if only the allocator can predict it.
func (known *countedNodes) newNodeDevices(n *snapshot.Node) *nodeDevices {
	count, pools := 0, n.DevicePools()
	for i := range pools {
		for _, s := range pools[i].Slices {
			count += len(s.Spec.Devices)
		}
	}
	if count > maxDevices || len(pools) > maxDevices {
		return new(nodeDevices)
	}
	d := &nodeDevices{first: make([]uint8, 1, count+1), driver: make([]uint8, 0, count), amounts: make([]amount, 0, min(count, maxAmounts))}
	devices := make([]capacities, 0, count)
	for i := range pools {
		if i == 0 || pools[i].Driver != pools[i-1].Driver {
			if len(d.drivers) == maxDrivers {
				return new(nodeDevices)
			}
			d.drivers = append(d.drivers, usage{})
		}
		added, ok := d.addPool(&pools[i], devices[len(devices):])
		if !ok || !d.allocate(&pools[i], added, len(devices)) {
			return new(nodeDevices)
		}
		devices = append(devices, added...)
	}
	if !d.describeCounters(known, pools, devices) {
		return new(nodeDevices)
	}
	for i, driver := range d.driver {
		if d.uses(i) != nil {
			continue // its unit is the set of counters
		}
		d.drivers[driver].used += d.share(i, &d.taken, d.amounts)
		d.drivers[driver].capacity += whole
	}
	if len(d.amounts) == 0 {
		d.amounts = nil
	}
	d.plain = true
	return d
}

// capacities are those of a device, in order of their names.
type capacities struct {
	device *resourcev1.Device
	names  []resourcev1.QualifiedName
}

// addPool describes the devices of the pool, with nothing allocated, and appends their capacities to added. ok is false if only the allocator
// can predict them.
func (d *nodeDevices) addPool(pool *snapshot.DevicePool, added []capacities) (all []capacities, ok bool) {
	seen := map[string]bool{}
	for _, s := range pool.Slices {
		if s.Spec.PerDeviceNodeSelection != nil {
			return nil, false
		}
		for i := range s.Spec.Devices {
			device := &s.Spec.Devices[i]
			shared, isCounted := isShared(device), len(device.ConsumesCounters) > 0
			if seen[device.Name] || shared && isCounted || device.BindingConditions != nil {
				return nil, false
			}
			seen[device.Name] = true
			if shared {
				d.shared.add(len(d.driver))
			}
			var names []resourcev1.QualifiedName
			if !isCounted { // which is allocated as a whole
				names = sortedNames(device.Capacity)
			}
			for _, name := range names {
				capacity := device.Capacity[name]
				size, ok := capacity.Value.AsInt64()
				if !ok || size < 0 || size > maxExact || len(d.amounts) >= maxAmounts {
					return nil, false
				}
				d.amounts = append(d.amounts, amount{size: size})
			}
			d.driver, d.first = append(d.driver, uint8(len(d.drivers)-1)), append(d.first, uint8(len(d.amounts)))
			added = append(added, capacities{device, names})
		}
	}
	return added, true
}

func deviceNamed(all []capacities, name string) int {
	return slices.IndexFunc(all, func(c capacities) bool { return c.device.Name == name })
}

// allocate adds what claims have of the pool, which has these devices from the first on.
func (d *nodeDevices) allocate(pool *snapshot.DevicePool, devices []capacities, first int) (ok bool) {
	for _, a := range pool.Allocated {
		i := deviceNamed(devices, a.Result.Device)
		if i < 0 || isAdmin(a.Result) {
			continue
		}
		if a.Result.ShareID == nil {
			d.taken.add(first + i)
			continue
		}
		if !d.shared.has(first + i) {
			return false
		}
		amounts := d.amounts[d.first[first+i]:]
		for at, name := range devices[i].names {
			consumed, some := a.Result.ConsumedCapacity[name]
			value, ok := consumed.AsInt64()
			if some && (!ok || value < 0 || amounts[at].used > maxExact-value) {
				return false
			}
			if some {
				amounts[at].used += value
			}
		}
	}
	return true
}

func sortedNames(of map[resourcev1.QualifiedName]resourcev1.DeviceCapacity) []resourcev1.QualifiedName {
	names := make([]resourcev1.QualifiedName, 0, len(of))
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// share returns how much of the device is used, in thousandths, as [unit.used].
func (d *nodeDevices) share(i int, taken *deviceSet, amounts []amount) (most int64) {
	if taken.has(i) {
		return whole
	}
	for _, a := range amounts[d.first[i]:d.first[i+1]] {
		if a.size > 0 {
			most = max(most, int64(math.Round(min(1, float64(a.used)/float64(a.size))*whole)))
		}
	}
	return most
}

// allocation is what is allocated of a node, with the devices of a new pod.
type allocation struct {
	taken, touched deviceSet
	amounts        [maxAmounts]amount
	used           [maxUsed]int64 // of the counters
}

// take allocates the first devices that fit.
func (d *nodeDevices) take(a *alternative, to *allocation) (ok bool) {
	left := a.count
	for word := range a.eligible {
		for rest := a.eligible[word] &^ to.taken[word]; rest != 0 && left > 0; rest &= rest - 1 {
			i := 64*word + bits.TrailingZeros64(rest)
			switch uses := d.uses(i); {
			case uses != nil:
				if !d.counted.use(uses, &to.used) {
					continue
				}
				to.taken.add(i)
			case !d.shared.has(i):
				to.taken.add(i)
			case !addAmounts(to.amounts[d.first[i]:d.first[i+1]], a.amounts[d.first[i]:d.first[i+1]]):
				continue
			}
			to.touched.add(i)
			left--
		}
	}
	return left == 0
}

func addAmounts(to []amount, amounts []int64) (ok bool) {
	for i, more := range amounts {
		if to[i].used+more > to[i].size {
			return false
		}
	}
	for i, more := range amounts {
		to[i].used += more
	}
	return true
}

// allocateAll allocates all parts. known is false if only the allocator knows what it allocates: a part that finds nothing may make it try
// other devices for the parts before.
func (d *nodeDevices) allocateAll(p plan, to *allocation) (known, ok bool) {
	d.start(to)
	for i, part := range p {
		known, ok := d.takeFirst(part, to)
		if known && !ok && i > 0 {
			d.start(to)
			known, ok = d.takeFirst(part, to)
			known = known && !ok // it finds nothing, whatever the parts before get
		}
		if !known || !ok {
			return known, ok
		}
	}
	return true, true
}

func (d *nodeDevices) start(to *allocation) {
	to.taken, to.touched = d.taken, deviceSet{}
	copy(to.amounts[:], d.amounts)
	copy(to.used[:], d.used)
}

// takeFirst allocates the first alternative for which there are devices. If there are too few for several, the allocator tries all
// combinations of these, and may give up before the next alternative. It may also find several that use other counters.
func (d *nodeDevices) takeFirst(part []alternative, to *allocation) (known, ok bool) {
	for i := range part {
		if d.take(&part[i], to) {
			return true, true
		}
		if part[i].count > 1 && (i < len(part)-1 || part[i].counted) {
			return false, false
		}
	}
	return true, false
}

// score returns what [resourceClaims.score] returns; ok is false if only the allocator can predict the node.
func (ps *plans) score(n *snapshot.Node) (score int64, ok bool) {
	d := *ps.policy.devices.Of(n)
	if !d.plain {
		return 0, false
	}
	nt := d.nodeTypeOf(ps.set, n)
	if nt == nil {
		return 0, false
	}
	p := ps.of(nt)
	if p == nil {
		return 0, false
	}
	var to allocation
	switch known, fits := d.allocateAll(p, &to); {
	case !known:
		return 0, false
	case !fits:
		return policy.NoOpinion, true
	}
	u := d.usageWith(&to)
	return ps.policy.packing().Score(u.used, u.capacity), true
}

// usageWith returns the usage of the drivers' units of which something is allocated in addition.
func (d *nodeDevices) usageWith(to *allocation) (u usage) {
	drivers, sets := uint64(0), false
	for word, rest := range to.touched {
		for ; rest != 0; rest &= rest - 1 {
			i := 64*word + bits.TrailingZeros64(rest)
			if driver := d.driver[i]; drivers>>driver&1 == 0 {
				drivers |= 1 << driver
				u.used, u.capacity = u.used+d.drivers[driver].used, u.capacity+d.drivers[driver].capacity
			}
			if d.uses(i) != nil {
				sets = true
			} else {
				u.used += d.share(i, &to.taken, to.amounts[:]) - d.share(i, &d.taken, d.amounts)
			}
		}
	}
	if sets {
		first := 0
		for _, end := range d.counted.ends {
			if !slices.Equal(to.used[first:end], d.used[first:end]) { // as few are
				u.used += meanShare(to.used[first:end], d.counted.sizes[first:end]) - meanShare(d.used[first:end], d.counted.sizes[first:end])
			}
			first = end
		}
	}
	return u
}
