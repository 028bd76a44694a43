package resourceclaims

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/snapshot"
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
	uses              [][]int64
	id                string
}

// layouts are those of all nodes. It is safe for concurrent use.
type layouts struct {
	mu    sync.Mutex
	known map[string]*layout
}

// counterSet identifies a GPU of a node.
type counterSet struct{ pool, name string }

// divided is a GPU of a node: its counters, and what the partitions use of each. Partitions that
// use the same are one.
type divided struct {
	names    []string // of the counters, in order
	counters []int64
	uses     [][]int64
}

// describeParts describes devices that are partitions. ok is false if a device uses counters of
// several GPUs, if not all GPUs can be divided in the same way, or if that is too large to compute.
func (d *described) describeParts(devices []ownDevice, known *layouts) (ok bool) {
	gpus, sets := []*divided(nil), map[counterSet]int{}
	parts := make([]placement.Device, len(devices)) // at first, the Partition is an index in uses
	for i, device := range devices {
		if len(device.ConsumesCounters) != 1 {
			return false
		}
		consumes := &device.ConsumesCounters[0]
		key := counterSet{device.pool.Name, consumes.CounterSet}
		at, seen := sets[key]
		if !seen {
			gpu := dividedOf(device.pool, consumes.CounterSet)
			if at = len(gpus); gpu == nil || at >= maxDivided {
				return false
			}
			gpus, sets[key] = append(gpus, gpu), at
		}
		parts[i] = placement.Device{GPU: at, Partition: gpus[at].add(consumes.Counters)}
		if parts[i].Partition >= maxPartitions {
			return false
		}
	}
	l := known.of(gpus[0])
	if l.Layout == nil || slices.ContainsFunc(gpus, func(g *divided) bool { return g.id() != l.id }) {
		return false
	}
	sum := sha256.Sum256([]byte(l.id))
	d.model += ", divided " + hex.EncodeToString(sum[:4]) // nodes of the model with other partitions are of another kind
	var free []placement.Device
	for i, device := range devices {
		uses := gpus[parts[i].GPU].uses[parts[i].Partition]
		parts[i].Partition, _ = slices.BinarySearchFunc(l.uses, uses, slices.Compare)
		d.part[device.id()] = parts[i]
		if !device.tainted() {
			free = append(free, parts[i])
		}
	}
	d.parts = &placement.Partitioned{Layout: l.Layout, Profiles: l.profiles, GPUs: make([]placement.State, len(gpus)), Devices: free}
	return true
}

// dividedOf returns the GPU with the counters, without partitions; nil if there are no such
// counters, or too many.
func dividedOf(pool *snapshot.DevicePool, name string) *divided {
	for _, s := range pool.Slices {
		for i := range s.Spec.SharedCounters {
			set := &s.Spec.SharedCounters[i]
			if set.Name != name || len(set.Counters) > maxCounters {
				continue
			}
			g := &divided{names: slices.Sorted(maps.Keys(set.Counters))}
			for _, counter := range g.names {
				value := set.Counters[counter].Value
				g.counters = append(g.counters, value.Value())
			}
			return g
		}
	}
	return nil
}

// add adds a partition that uses these counters, and returns its index. One with counters that the
// GPU does not have uses more than there is.
func (g *divided) add(consumes map[string]resourcev1.Counter) int {
	uses, found := make([]int64, len(g.names)+1), 0
	for i, name := range g.names {
		if counter, ok := consumes[name]; ok {
			uses[i], found = counter.Value.Value(), found+1
		}
	}
	uses[len(g.names)] = int64(len(consumes) - found)
	for i, known := range g.uses {
		if slices.Equal(known, uses) {
			return i
		}
	}
	g.uses = append(g.uses, uses)
	return len(g.uses) - 1
}

// id is the same for GPUs that can be divided in the same way.
func (g *divided) id() string {
	id := binary.AppendVarint(nil, int64(len(g.counters)))
	for _, c := range g.counters {
		id = binary.AppendVarint(id, c)
	}
	for _, uses := range slices.SortedFunc(slices.Values(g.uses), slices.Compare) {
		for _, u := range uses {
			id = binary.AppendVarint(id, u)
		}
	}
	return string(id)
}

// of returns the layout of the GPU. The first call for a model takes milliseconds.
func (ls *layouts) of(g *divided) *layout {
	id := g.id()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.known[id]; l != nil {
		return l
	}
	l := &layout{id: id, uses: slices.SortedFunc(slices.Values(g.uses), slices.Compare)}
	var partitions []placement.Partition
	for _, uses := range l.uses {
		name := profileOf(uses)
		number := slices.Index(l.profiles, name)
		if number < 0 {
			number = len(l.profiles)
			l.profiles = append(l.profiles, name)
		}
		partitions = append(partitions, placement.Partition{Profile: number, Uses: uses})
	}
	l.Layout = placement.NewLayout(append(slices.Clip(g.counters), 0), partitions)
	if ls.known == nil || len(ls.known) >= maxLayouts {
		ls.known = map[string]*layout{}
	}
	ls.known[id] = l
	return l
}

// profileOf returns the name of the profile of a partition: the amounts that it uses. So partitions
// that differ only by their place on the GPU are of one profile.
func profileOf(uses []int64) string {
	amounts := slices.DeleteFunc(slices.Clone(uses), func(u int64) bool { return u == 0 })
	slices.SortFunc(amounts, func(a, b int64) int { return cmp.Compare(b, a) })
	return strings.Trim(fmt.Sprint(amounts), "[]")
}
