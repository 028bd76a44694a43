package resourceclaims

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"

	"outboard.dev/outboard/snapshot"
)

// This file describes devices that use counters, such as partitions of GPUs, for the arithmetic.

const (
	// maxUsed bounds the counters of a node.
	maxUsed = 256
	// maxCountedNodes is how many different counted are kept: one for each type of node with such devices.
	maxCountedNodes = 64
)

// counted is what the devices of a node use of counters. Nodes of one type share it. It is immutable.
type counted struct {
	sizes   []int64 // of the counters of all sets, one set after the other
	ends    []int   // of the sets, in sizes
	drivers []uint8 // of the sets
	uses    [][]use // by device; nil: it uses no counters
}

// use is how much a device uses of a counter. It is more than 0.
type use struct {
	counter int
	amount  int64
}

// countedNodes are the counted of all nodes. It is safe for concurrent use.
type countedNodes struct {
	mu    sync.Mutex
	known map[string]*counted
}

// setID identifies a set of counters of a node.
type setID struct {
	pool int
	name string
}

// counterSets are the sets of counters of a node, while they are described.
type counterSets struct {
	counted
	counters map[setID]map[string]int // to the index in sizes
}

// describeCounters sets counted and used. ok is false if only the allocator knows what it would do: if a device uses no counter at all or one that
// does not exist, or if more of a counter is used than there is, which stops all allocations of its pool.
func (d *nodeDevices) describeCounters(known *countedNodes, pools []snapshot.DevicePool, devices []capacities) (ok bool) {
	s := counterSets{counters: map[setID]map[string]int{}}
	driver := -1
	for i := range pools {
		if i == 0 || pools[i].Driver != pools[i-1].Driver {
			driver++
		}
		for _, slice := range pools[i].Slices {
			for j := range slice.Spec.SharedCounters {
				if !s.addSet(i, uint8(driver), &slice.Spec.SharedCounters[j]) {
					return false
				}
			}
		}
	}
	at := 0
	for i := range pools {
		for _, slice := range pools[i].Slices {
			for range slice.Spec.Devices {
				if !s.addDevice(i, devices[at].device) {
					return false
				}
				at++
			}
		}
	}
	if len(s.drivers) == 0 {
		return true
	}
	d.counted, d.used = known.of(&s.counted), make([]int64, len(s.sizes))
	for i, uses := range d.counted.uses {
		if !d.taken.has(i) {
			continue
		}
		for _, u := range uses {
			if d.used[u.counter] += u.amount; d.used[u.counter] > d.counted.sizes[u.counter] {
				return false
			}
		}
	}
	first := 0
	for i, end := range d.counted.ends {
		driver := &d.drivers[d.counted.drivers[i]]
		driver.used, driver.capacity = driver.used+meanShare(d.used[first:end], d.counted.sizes[first:end]), driver.capacity+whole
		first = end
	}
	return true
}

func (s *counterSets) addSet(pool int, driver uint8, set *resourcev1.CounterSet) (ok bool) {
	id := setID{pool, set.Name}
	if s.counters[id] != nil {
		return false
	}
	s.counters[id] = make(map[string]int, len(set.Counters))
	names := make([]string, 0, len(set.Counters))
	for name := range set.Counters {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		counter := set.Counters[name]
		size, ok := counter.Value.AsInt64()
		if !ok || size < 0 || size > maxExact || len(s.sizes) == maxUsed {
			return false
		}
		s.counters[id][name] = len(s.sizes)
		s.sizes = append(s.sizes, size)
	}
	s.ends, s.drivers = append(s.ends, len(s.sizes)), append(s.drivers, driver)
	return true
}

func (s *counterSets) addDevice(pool int, d *resourcev1.Device) (ok bool) {
	var uses []use
	for i := range d.ConsumesCounters {
		consumes := &d.ConsumesCounters[i]
		counters := s.counters[setID{pool, consumes.CounterSet}]
		for name, counter := range consumes.Counters {
			at, exists := counters[name]
			amount, ok := counter.Value.AsInt64()
			if !exists || !ok || amount < 0 || amount > maxExact {
				return false
			}
			if amount > 0 {
				uses = append(uses, use{at, amount})
			}
		}
	}
	if len(d.ConsumesCounters) > 0 && len(uses) == 0 {
		return false
	}
	slices.SortFunc(uses, func(a, b use) int { return a.counter - b.counter })
	for i := 1; i < len(uses); i++ {
		if uses[i].counter == uses[i-1].counter {
			return false
		}
	}
	s.uses = append(s.uses, uses)
	return true
}

// of returns an equal counted that other nodes have as well.
func (known *countedNodes) of(c *counted) *counted {
	key := binary.AppendUvarint(nil, uint64(len(c.ends)))
	for i, end := range c.ends {
		key = append(binary.AppendUvarint(key, uint64(end)), c.drivers[i])
	}
	for _, size := range c.sizes {
		key = binary.AppendVarint(key, size)
	}
	for _, uses := range c.uses {
		key = binary.AppendUvarint(key, uint64(len(uses)))
		for _, u := range uses {
			key = binary.AppendVarint(binary.AppendUvarint(key, uint64(u.counter)), u.amount)
		}
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	if shared := known.known[string(key)]; shared != nil {
		return shared
	}
	if known.known == nil || len(known.known) >= maxCountedNodes {
		known.known = map[string]*counted{}
	}
	own := *c
	known.known[string(key)] = &own
	return &own
}

// uses returns what the device uses of counters, or nil.
func (d *nodeDevices) uses(i int) []use {
	if d.counted == nil {
		return nil
	}
	return d.counted.uses[i]
}

// use adds what a device uses if there is enough.
func (c *counted) use(uses []use, used *[maxUsed]int64) (ok bool) {
	for _, u := range uses {
		if used[u.counter]+u.amount > c.sizes[u.counter] {
			return false
		}
	}
	for _, u := range uses {
		used[u.counter] += u.amount
	}
	return true
}

// meanShare returns how much is used of a set with counters of these sizes, in thousandths, as [unit.used].
func meanShare(used, sizes []int64) int64 {
	sum := int64(0)
	for i, size := range sizes {
		if size > 0 {
			sum += int64(math.Round(min(1, float64(used[i])/float64(size)) * whole))
		}
	}
	return sum / int64(max(1, len(sizes)))
}
