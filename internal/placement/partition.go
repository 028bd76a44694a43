package placement

import (
	"encoding/binary"
	"math"
	"slices"
)

// This file rates nodes whose GPUs are divided into partitions, such as the instances of NVIDIA's
// MIG. As in Dynamic Resource Allocation, a GPU has counters, a partition uses some of each, and
// partitions can be in use together if their sums do not exceed the counters.
//
// A GPU is worth what can still be allocated of it:
//
//	Σ share of the requests for a profile · partitions of it that still fit ÷ those of an empty GPU
//
// so an empty GPU is worth 1. Each term counts as if only requests for that profile came. Unlike
// the values of [Waste], these do not follow a GPU until it is full: partitions end at any time,
// and what counts is which requests the GPU can serve until then.

const (
	// maxMoves bounds the states of a Layout times its partitions. An NVIDIA A100 with all its
	// counters has about a thousand states, and 26 partitions.
	maxMoves = 1 << 18
	// priorRequests is how many requests for each profile are expected before any has come.
	priorRequests = 0.5
)

// Partition is one possible partition of a GPU.
type Partition struct {
	Profile int     // 0 or more: what a request is for, at whatever place of the GPU
	Uses    []int64 // of each counter of the GPU
}

// Layout is how GPUs of one kind can be divided. It is immutable. Equal GPUs should share it: to
// compute one takes milliseconds.
type Layout struct {
	profiles []int     // by partition
	next     [][]State // by state and partition
}

// State is what is in use of a GPU. The zero value is nothing.
type State int16

// unavailable is the state after a partition that does not fit.
const unavailable State = -1

// NewLayout returns the layout of a GPU with these counters and partitions, which are in the order
// in which they are allocated; or nil if the GPU has too many states. A partition that uses no
// counter, or one that the GPU does not have, never fits.
func NewLayout(counters []int64, partitions []Partition) *Layout {
	l := &Layout{}
	for _, p := range partitions {
		l.profiles = append(l.profiles, p.Profile)
	}
	known, left := map[string]State{}, [][]int64(nil) // left: by state, of each counter
	enter := func(counters []int64) State {
		var key []byte
		for _, c := range counters {
			key = binary.AppendVarint(key, c)
		}
		s, ok := known[string(key)]
		if !ok {
			s = State(len(left))
			known[string(key)], left = s, append(left, counters)
		}
		return s
	}
	enter(counters)
	for s := 0; s < len(left); s++ {
		next := make([]State, len(partitions))
		for i, p := range partitions {
			next[i] = unavailable
			if after := without(left[s], p.Uses); after != nil {
				next[i] = enter(after)
			}
			if len(left)*len(partitions) > maxMoves || len(left) > math.MaxInt16 {
				return nil
			}
		}
		l.next = append(l.next, next)
	}
	return l
}

// without returns what is left of the counters, or nil if the partition does not fit.
func without(counters, uses []int64) []int64 {
	left, any := make([]int64, len(counters)), false
	copy(left, counters)
	for i, used := range uses {
		if used == 0 {
			continue
		}
		if used < 0 || i >= len(left) || left[i] < used {
			return nil
		}
		left[i], any = left[i]-used, true
	}
	if !any {
		return nil
	}
	return left
}

// Take returns the state when the partition is in use as well; ok is false if it does not fit.
func (l *Layout) Take(s State, partition int) (after State, ok bool) {
	after = l.next[s][partition]
	return after, after != unavailable
}

// Profile returns the profile of the partition.
func (l *Layout) Profile(partition int) int { return l.profiles[partition] }

// Device is a partition of one of the GPUs of a node.
type Device struct {
	GPU       int // index in Partitioned.GPUs
	Partition int // index in the Layout
}

// Partitioned is the GPUs of a node that can be divided in the same way.
type Partitioned struct {
	Layout   *Layout
	Profiles []string // their names; see Shape
	GPUs     []State
	Devices  []Device // in the order in which they are allocated
}

// part returns the partition that the shape, which requests one, gets of the node.
func (n *Node) part(s Shape) (d Device, ok bool) {
	if n.Parts == nil || !s.Models.Has(n.Model) {
		return Device{}, false
	}
	profile := slices.Index(n.Parts.Profiles, s.Profile)
	if profile < 0 {
		return Device{}, false
	}
	return n.Parts.First(profile)
}

// ratePart returns the offer of the node for a shape that requests a partition.
func (w *Waste) ratePart(n *Node, s Shape) (offers Offers) {
	d, ok := n.part(s)
	if !ok {
		return offers
	}
	lost, _ := w.partitionValues(n).Loss(n.Parts.GPUs[d.GPU], d.Partition)
	offers.Add(Offer{Cost: lost, GPU: FirstFree})
	return offers
}

// partitionValues returns the values for the partitions of the node, from the mix. The first call
// for a model computes them.
func (w *Waste) partitionValues(n *Node) *PartitionValues {
	key := struct {
		layout *Layout
		model  string
	}{n.Parts.Layout, n.Model}
	if known, ok := w.parts.Load(key); ok {
		return known.(*PartitionValues)
	}
	came := make([]float64, len(n.Parts.Profiles))
	for s, weight := range w.mix.All() {
		if i := slices.Index(n.Parts.Profiles, s.Profile); i >= 0 && s.Models.Has(n.Model) {
			came[i] += weight
		}
	}
	values, _ := w.parts.LoadOrStore(key, NewPartitionValues(n.Parts.Layout, came))
	return values.(*PartitionValues)
}

// First returns the device that a request for the profile gets: the first one that fits.
func (p *Partitioned) First(profile int) (d Device, ok bool) {
	for _, d := range p.Devices {
		if p.Layout.profiles[d.Partition] == profile && p.Layout.next[p.GPUs[d.GPU]][d.Partition] != unavailable {
			return d, true
		}
	}
	return Device{}, false
}

// PartitionValues are what the states of GPUs with a Layout are worth to the usual requests. They
// are immutable.
type PartitionValues struct {
	layout *Layout
	states []float64 // in GPUs
}

// NewPartitionValues returns the values for a mix of requests: how many have come for each profile.
func NewPartitionValues(l *Layout, came []float64) *PartitionValues {
	v := &PartitionValues{l, make([]float64, len(l.next))}
	sum := 0.0
	for _, p := range slices.Compact(slices.Sorted(slices.Values(l.profiles))) {
		all := l.placesOf(0, p)
		if all == 0 {
			continue
		}
		weight := priorRequests
		if p < len(came) {
			weight += came[p]
		}
		sum += weight
		for s := range v.states {
			v.states[s] += weight * float64(l.placesOf(State(s), p)) / float64(all)
		}
	}
	for s := range v.states {
		v.states[s] /= math.Max(sum, priorRequests)
	}
	return v
}

// room returns how many partitions of the profile still fit, one after the other.
func (l *Layout) placesOf(s State, profile int) (count int) {
	for i := 0; i < len(l.profiles); i++ {
		if l.profiles[i] == profile && l.next[s][i] != unavailable {
			s = l.next[s][i]
			count++
			i-- // it may fit again
		}
	}
	return count
}

// Loss returns how much less a GPU in the state is worth when the partition is in use as well; ok
// is false if it does not fit. The costs of several partitions are added up. With [Order] added,
// the node with the lowest cost is best.
func (v *PartitionValues) Loss(s State, partition int) (lost Cost, ok bool) {
	after, ok := v.layout.Take(s, partition)
	if !ok {
		return 0, false
	}
	return Cost(math.Round((v.states[s] - v.states[after]) * float64(OneGPU))), true
}
