package placement

import "testing"

// Two nodes with an A30 each, to which requests come, and leave after an exponential time; a
// request that fits nowhere is lost. The best way to choose the node follows from the equations of
// this Markov decision process. What the values choose is nearly as good.
func TestPartitionValuesAgainstTheOptimum(t *testing.T) {
	for _, mix := range [][]float64{{1, 1, 1}, {8, 2, 1}, {1, 4, 1}} {
		p := newProcess(mix)
		best := p.served(func(at, profile int, value []float64) int {
			if next := p.comes[at][profile]; value[next[1]] > value[next[0]] {
				return 1
			}
			return 0
		})
		by := func(cost func(set, profile int) float64) float64 {
			return p.served(func(at, profile int, _ []float64) int {
				if cost(at%len(p.sets), profile) < cost(at/len(p.sets), profile)-1e-9 {
					return 1
				}
				return 0
			})
		}
		v := NewPartitionValues(p.layout, mix)
		values := by(func(set, profile int) float64 {
			d, _ := p.gpu(set).First(profile)
			lost, _ := v.Loss(p.sets[set].state, d.Partition)
			return float64(lost)
		})
		fullest := by(func(set, _ int) float64 { return -p.sets[set].slices })
		emptiest := by(func(set, _ int) float64 { return p.sets[set].slices })
		if values < best-0.002 || values < fullest || values < emptiest+0.01 {
			t.Errorf("%v: served %.4f at best, %.4f by value, %.4f on the fullest node, %.4f on the emptiest", mix, best, values, fullest, emptiest)
		}
	}
}

// process is the Markov chain, in steps in which a request comes, leaves, or nothing happens. Its
// states are pairs of sets of partitions in use: the index of the first times the number of sets,
// plus that of the second.
type process struct {
	layout *Layout
	mix    []float64 // probabilities of the profiles
	sets   []inUse
	// By state: the next ones when a request comes, by profile and node, -1 where it does not fit;
	// and when one leaves.
	comes   [][3][2]int
	leaves  [][]int
	arrival float64 // requests that come during a mean lifetime
}

type inUse struct {
	partitions []int
	state      State
	slices     float64
}

// slicesOf are what the profiles of the A30 use, together 8 on both nodes.
var slicesOf = []float64{1, 2, 4}

const offered = 0.9 * 8

func newProcess(mix []float64) *process {
	p := &process{layout: NewLayout(a30Slices, a30Partitions)}
	sum, mean := 0.0, 0.0
	for profile, weight := range mix {
		sum += weight
		mean += weight * slicesOf[profile]
	}
	for _, weight := range mix {
		p.mix = append(p.mix, weight/sum)
	}
	p.arrival = offered * sum / mean
	index := map[int]int{}
	bits := func(partitions []int) (all int) {
		for _, i := range partitions {
			all |= 1 << i
		}
		return all
	}
	subsets(a30Slices, a30Partitions, func(set []int) {
		u := inUse{partitions: set}
		for _, i := range set {
			u.state, _ = p.layout.Take(u.state, i)
			u.slices += slicesOf[a30Partitions[i].Profile]
		}
		index[bits(set)] = len(p.sets)
		p.sets = append(p.sets, u)
	})
	for at := range len(p.sets) * len(p.sets) {
		states := [2]int{at / len(p.sets), at % len(p.sets)}
		with := func(node, all int) int {
			next := states
			next[node] = index[all]
			return next[0]*len(p.sets) + next[1]
		}
		var comes [3][2]int
		var leaves []int
		for node, set := range states {
			all := bits(p.sets[set].partitions)
			for profile := range comes {
				comes[profile][node] = -1
				if d, ok := p.gpu(set).First(profile); ok {
					comes[profile][node] = with(node, all|1<<d.Partition)
				}
			}
			for _, i := range p.sets[set].partitions {
				leaves = append(leaves, with(node, all&^(1<<i)))
			}
		}
		p.comes, p.leaves = append(p.comes, comes), append(p.leaves, leaves)
	}
	return p
}

func (p *process) gpu(set int) *Partitioned {
	g := &Partitioned{Layout: p.layout, GPUs: []State{p.sets[set].state}}
	for i := range a30Partitions {
		g.Devices = append(g.Devices, Device{0, i})
	}
	return g
}

// served returns the served share of the requested slices in the long run, if choose returns one of
// two nodes on which a request fits. value is what the states are worth later, as far as it is
// known.
func (p *process) served(choose func(at, profile int, value []float64) int) float64 {
	value, gain := make([]float64, len(p.comes)), 0.0
	rate := p.arrival + 8 // at most eight requests run
	for range 1000 {
		next := make([]float64, len(value))
		for at := range next {
			x, stays := 0.0, rate-p.arrival
			for profile, q := range p.mix {
				comes, to := p.comes[at][profile], 0
				switch {
				case comes[0] < 0 && comes[1] < 0:
					x += p.arrival * q * value[at]
					continue
				case comes[0] < 0:
					to = 1
				case comes[1] >= 0:
					to = choose(at, profile, value)
				}
				x += p.arrival * q * (slicesOf[profile] + value[comes[to]])
			}
			for _, to := range p.leaves[at] {
				x += value[to]
				stays--
			}
			next[at] = (x + stays*value[at]) / rate
		}
		gain = next[0] - value[0]
		for at := range next {
			value[at] = next[at] - next[0]
		}
	}
	return gain * rate / offered
}
