package resourceclaims

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/lru"

	"outboard.dev/outboard/internal/placement"
)

const (
	// maxLayouts is how many ways to divide GPUs are kept: one for each model that is divided.
	maxLayouts = 64
	// maxCounters and maxPartitions bound those of one GPU, and maxDivided the GPUs of a node.
	maxCounters, maxPartitions, maxDivided = 64, 128, 64
)

// layout is a way in which GPUs can be divided. It is immutable.
type layout struct {
	*placement.Layout          // nil: it has too many states
	profiles          []string // by number
}

// describeParts describes devices that are partitions. ok is false if a device uses counters of
// several GPUs, if not all GPUs can be divided in the same way, or if that is too large to compute.
func (d *described) describeParts(devices []*device, layouts *lru.Cache) (ok bool) {
	names := slices.Sorted(maps.Keys(devices[0].units[0].capacity))
	counters := countersOf(devices[0].units[0], names)
	if len(names) > maxCounters {
		return false
	}
	var gpus []*unit
	own := make([][]int64, len(devices)) // what each uses of the counters
	uses := map[*unit][][]int64{}        // by the different partitions, in order
	for i, device := range devices {
		gpu := device.units[0]
		if uses[gpu] == nil {
			gpus = append(gpus, gpu)
		}
		own[i] = usesOf(device, names)
		at, known := slices.BinarySearchFunc(uses[gpu], own[i], slices.Compare)
		if !known {
			uses[gpu] = slices.Insert(uses[gpu], at, own[i])
		}
		if len(device.units) != 1 || len(gpus) > maxDivided || len(uses[gpu]) > maxPartitions {
			return false
		}
	}
	first := uses[gpus[0]]
	for _, gpu := range gpus {
		if !slices.Equal(countersOf(gpu, names), counters) || !slices.EqualFunc(uses[gpu], first, slices.Equal) {
			return false
		}
	}
	name := fmt.Sprint(counters, first)
	l := layoutOf(name, counters, first, layouts)
	if l.Layout == nil {
		return false
	}
	sum := sha256.Sum256([]byte(name))
	d.model += ", divided " + hex.EncodeToString(sum[:4])
	d.parts = &placement.Partitioned{Layout: l.Layout, Profiles: l.profiles, GPUs: make([]placement.State, len(gpus))}
	for i, device := range devices {
		partition, _ := slices.BinarySearchFunc(first, own[i], slices.Compare)
		part := placement.Device{GPU: slices.Index(gpus, device.units[0]), Partition: partition}
		d.place[device.id] = part
		if !device.tainted() {
			d.parts.Devices = append(d.parts.Devices, part)
		}
		if state := &d.parts.GPUs[part.GPU]; device.cut {
			if *state, ok = l.Take(*state, partition); !ok {
				return false // hardware has changed
			}
		}
	}
	return true
}

// countersOf returns the counters of the GPU with these names, and how many more it has.
func countersOf(gpu *unit, names []string) (all []int64) {
	for _, name := range names {
		amount := gpu.capacity[name]
		all = append(all, amount.Value())
	}
	return append(all, int64(len(gpu.capacity)-len(names)))
}

// usesOf returns what the partition uses of each of countersOf. One that uses counters with other
// names uses more than there is.
func usesOf(d *device, names []string) (uses []int64) {
	consumes, others := d.ConsumesCounters[0].Counters, len(d.ConsumesCounters[0].Counters)
	for _, name := range names {
		counter, ok := consumes[name]
		if uses = append(uses, counter.Value.Value()); ok {
			others--
		}
	}
	return append(uses, int64(others))
}

// layoutOf returns the layout of GPUs with these counters and partitions. The first call for a name
// takes milliseconds.
func layoutOf(name string, counters []int64, uses [][]int64, known *lru.Cache) *layout {
	if l, ok := known.Get(name); ok {
		return l.(*layout)
	}
	l := &layout{}
	var partitions []placement.Partition
	for _, used := range uses {
		profile := profileOf(used)
		number := slices.Index(l.profiles, profile)
		if number < 0 {
			number = len(l.profiles)
			l.profiles = append(l.profiles, profile)
		}
		partitions = append(partitions, placement.Partition{Profile: number, Uses: used})
	}
	l.Layout = placement.NewLayout(counters, partitions)
	known.Add(name, l)
	return l
}

// profileOf returns the name of the profile of a partition: the amounts that it uses. So partitions
// that differ only by their place on the GPU are of one profile.
func profileOf(uses []int64) string {
	amounts := slices.DeleteFunc(slices.Clone(uses), func(u int64) bool { return u == 0 })
	slices.SortFunc(amounts, func(a, b int64) int { return cmp.Compare(b, a) })
	return strings.Trim(fmt.Sprint(amounts), "[]")
}
