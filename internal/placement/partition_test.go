package placement

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The A30 as in NVIDIA's MIG User Guide: four slices, of which 1g.6gb uses any, 2g.12gb two from
// slice 0 or 2, and 4g.24gb all.
var (
	a30Slices     = []int64{1, 1, 1, 1}
	a30Partitions = []Partition{
		{0, []int64{1, 0, 0, 0}}, {0, []int64{0, 1, 0, 0}}, {0, []int64{0, 0, 1, 0}}, {0, []int64{0, 0, 0, 1}},
		{1, []int64{1, 1, 0, 0}}, {1, []int64{0, 0, 1, 1}},
		{2, []int64{1, 1, 1, 1}},
	}
)

// subsets yields all sets of partitions that fit the counters together.
func subsets(counters []int64, partitions []Partition, yield func([]int)) {
	for bits := range 1 << len(partitions) {
		used, set := make([]int64, len(counters)), []int(nil)
		for i, p := range partitions {
			if bits>>i&1 == 1 {
				set = append(set, i)
				for c := range counters {
					used[c] += p.Uses[c]
				}
			}
		}
		if fits(counters, used) {
			yield(set)
		}
	}
}

func fits(counters, used []int64) bool {
	for c := range counters {
		if used[c] > counters[c] {
			return false
		}
	}
	return true
}

// A set of partitions can be taken, in any order, if and only if the sums of what they use do not
// exceed the counters. What a state is worth equals what all sets that fit in addition say.
func TestPartitionsByBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	came := []float64{5, 2, 1}
	for _, gpu := range []struct {
		name       string
		counters   []int64
		partitions []Partition
	}{
		{"A30", a30Slices, a30Partitions},
		// The second counter is shared by all partitions, and is used up before the slices are.
		{"a counter that is summed up", []int64{3, 1, 1, 1, 1}, []Partition{
			{0, []int64{1, 1, 0, 0, 0}}, {0, []int64{1, 0, 1, 0, 0}}, {0, []int64{1, 0, 0, 1, 0}}, {0, []int64{1, 0, 0, 0, 1}},
			{1, []int64{2, 1, 1, 0, 0}}, {1, []int64{2, 0, 0, 1, 1}},
		}},
	} {
		l := NewLayout(gpu.counters, gpu.partitions)
		v := NewPartitionValues(l, came)
		var possible [][]int
		subsets(gpu.counters, gpu.partitions, func(set []int) { possible = append(possible, set) })
		take := func(set []int) (s State, ok bool) {
			for _, i := range set {
				if s, ok = l.Take(s, i); !ok {
					return s, false
				}
			}
			return s, true
		}
		taken := 0
		for bits := range 1 << len(gpu.partitions) {
			var set []int
			for i := range gpu.partitions {
				if bits>>i&1 == 1 {
					set = append(set, i)
				}
			}
			rng.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
			s, ok := take(set)
			if !ok {
				continue
			}
			taken++
			slices.Sort(set)
			if again, _ := take(set); again != s {
				t.Errorf("%s: the state after %v depends on the order", gpu.name, set)
			}
			want, sum := 0.0, 0.0
			for profile, weight := range came {
				most := func(with []int) (n float64) {
					for _, other := range possible {
						if !slices.ContainsFunc(with, func(i int) bool { return !slices.Contains(other, i) }) {
							n = math.Max(n, more(gpu.partitions, other, with, profile))
						}
					}
					return n
				}
				if all := most(nil); all > 0 {
					want += (weight + priorRequests) * most(set) / all
					sum += weight + priorRequests
				}
			}
			if got := v.states[s]; math.Abs(got-want/sum) > 1e-9 {
				t.Errorf("%s with %v in use is worth %v, want %v", gpu.name, set, got, want/sum)
			}
		}
		if taken != len(possible) {
			t.Errorf("%s: %d sets of partitions can be taken, and %d fit", gpu.name, taken, len(possible))
		}
		if got := v.states[0]; math.Abs(got-1) > 1e-9 {
			t.Errorf("%s is worth %v when it is empty", gpu.name, got)
		}
	}
}

// more returns how many partitions of the profile the set has in addition to those in use; -1 if it
// also has others.
func more(partitions []Partition, set, used []int, profile int) float64 {
	n := 0.0
	for _, i := range set {
		switch {
		case slices.Contains(used, i):
		case partitions[i].Profile != profile:
			return -1
		default:
			n++
		}
	}
	return n
}

// The device is the first one that fits in the order of the devices, and not of the GPUs.
func TestFirstDevice(t *testing.T) {
	l := NewLayout(a30Slices, a30Partitions)
	half, _ := l.Take(0, 0)
	startMajor := []Device{{0, 4}, {1, 4}, {0, 5}, {1, 5}, {0, 6}, {1, 6}}
	gpuMajor := []Device{{0, 4}, {0, 5}, {0, 6}, {1, 4}, {1, 5}, {1, 6}}
	for _, tt := range []struct {
		name    string
		devices []Device
		profile int
		want    Device
		ok      bool
	}{
		{"start-major", startMajor, 1, Device{1, 4}, true},
		{"GPU-major", gpuMajor, 1, Device{0, 5}, true},
		{"a whole GPU", startMajor, 2, Device{1, 6}, true},
		{"no such device", startMajor, 0, Device{}, false},
		{"no such profile", startMajor, 7, Device{}, false},
	} {
		p := Partitioned{Layout: l, GPUs: []State{half, 0}, Devices: tt.devices}
		if d, ok := p.First(tt.profile); d != tt.want || ok != tt.ok {
			t.Errorf("%s: %v, %v, want %v, %v", tt.name, d, ok, tt.want, tt.ok)
		}
		v := NewPartitionValues(l, nil)
		rate := func() {
			if d, ok := p.First(tt.profile); ok {
				v.Loss(p.GPUs[d.GPU], d.Partition)
			}
		}
		if allocs := testing.AllocsPerRun(100, rate); allocs > 0 {
			t.Errorf("%s: %v allocations", tt.name, allocs)
		}
	}
}

// An A100 40GB with counters as in NVIDIA's DRA driver, and with the profiles of NVIDIA's MIG User
// Guide (and the GPU itself), has a layout, although each counter makes other states.
func TestLayoutOfAllCounters(t *testing.T) {
	const memorySlices = 8
	profiles := []struct {
		counters []int64 // MiB, multiprocessors, decoders, copy engines, JPEG, optical flow
		slices   int
		starts   []int
	}{
		{[]int64{4864, 14, 0, 1, 0, 0}, 1, []int{0, 1, 2, 3, 4, 5, 6}}, // 1g.5gb
		{[]int64{4864, 14, 1, 1, 1, 1}, 1, []int{0, 1, 2, 3, 4, 5, 6}}, // 1g.5gb+me
		{[]int64{9856, 14, 1, 1, 0, 0}, 2, []int{0, 2, 4, 6}},          // 1g.10gb
		{[]int64{9856, 28, 1, 2, 0, 0}, 2, []int{0, 2, 4}},             // 2g.10gb
		{[]int64{19968, 42, 2, 3, 0, 0}, 4, []int{0, 4}},               // 3g.20gb
		{[]int64{19968, 56, 2, 4, 0, 0}, 4, []int{0}},                  // 4g.20gb
		{[]int64{40192, 98, 5, 7, 1, 1}, 8, []int{0}},                  // 7g.40gb
		{[]int64{40192, 98, 5, 7, 1, 1}, 8, []int{0}},                  // the GPU
	}
	var partitions []Partition
	for i, p := range profiles {
		for _, start := range p.starts {
			uses := append(slices.Clone(p.counters), make([]int64, memorySlices)...)
			for slice := range p.slices {
				uses[len(p.counters)+start+slice] = 1
			}
			partitions = append(partitions, Partition{i, uses})
		}
	}
	l := NewLayout(partitions[len(partitions)-1].Uses, partitions)
	if l == nil {
		t.Fatal("there is no layout")
	}
	first, _ := l.Take(0, 0)
	v := NewPartitionValues(l, nil)
	if v.states[0] != 1 || l.placesOf(first, 0) != 6 || l.placesOf(first, 3) != 2 || l.placesOf(first, 4) != 1 || l.placesOf(first, 7) != 0 {
		t.Errorf("an empty GPU is worth %v", v.states[0])
	}
}

// Whatever a driver reports, there is a layout or none, and no panic.
func TestHostileLayouts(t *testing.T) {
	many := make([]int64, 20)
	var each []Partition
	for i := range many {
		many[i] = 1
		uses := make([]int64, len(many))
		uses[i] = 1
		each = append(each, Partition{0, uses})
	}
	if l := NewLayout(many, each); l != nil {
		t.Errorf("a layout with %d states", len(l.next))
	}
	strange := []Partition{{0, nil}, {1 << 40, []int64{0}}, {2, []int64{-1}}, {3, []int64{1, 1}}, {4, []int64{1 << 62}}, {5, []int64{1}}}
	for _, counters := range [][]int64{nil, {0}, {-1}, {2}, {1<<63 - 1}} {
		l := NewLayout(counters, strange[:5])
		v := NewPartitionValues(l, []float64{1, 1, 1})
		for i := range 4 {
			if lost, ok := v.Loss(0, i); ok {
				t.Errorf("of %v, partition %d fits for %d", counters, i, lost)
			}
		}
	}
	if l := NewLayout([]int64{2}, strange); len(l.next) != 3 {
		t.Errorf("%d states", len(l.next))
	}
	if NewLayout([]int64{1 << 40}, strange) != nil {
		t.Error("a layout with 2^40 states")
	}
}
