package main

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"outboard.dev/outboard/bench/trials"
	"outboard.dev/outboard/internal/placement"
)

// This file measures the choice of a node for requests for MIG partitions, of which kube-scheduler
// allocates the first that fits. Requests come at random times and end after an exponential time; a
// request that fits nowhere is lost.

const (
	partitionNodes = 16
	gpusPerNode    = 8
	// Times in mean lifetimes of a request: until the measurement begins, and until it ends.
	partitionWarmUp, partitionEnd = 5.0, 30.0
	smPerSlice                    = 14
	computeSlices, memorySlices   = 7, 8
)

// profile is a MIG profile of the NVIDIA A100 40GB.
type profile struct {
	name            string
	compute, memory int   // slices
	starts          []int // memory slices at which it can begin
}

// a100 is as "nvidia-smi mig -lgip" and "-lgipp" report it. NVIDIA's Multi-Instance GPU User Guide
// documents both; these are facts, and no text is copied.
var a100 = []profile{
	{"1g.5gb", 1, 1, []int{0, 1, 2, 3, 4, 5, 6}},
	{"1g.10gb", 1, 2, []int{0, 2, 4, 6}},
	{"2g.10gb", 2, 2, []int{0, 2, 4}},
	{"3g.20gb", 3, 4, []int{0, 4}},
	{"4g.20gb", 4, 4, []int{0}},
	{"7g.40gb", 7, 8, []int{0}},
}

// requestMixes are how often each profile of a100 is requested.
var requestMixes = []struct {
	name    string
	weights []float64
}{
	{"even", []float64{1, 0, 1, 1, 1, 1}},
	{"even, with 1g.10gb", []float64{1, 1, 1, 1, 1, 1}},
	{"mostly small", []float64{8, 2, 4, 2, 1, 1}},
}

// newA100s returns the GPUs of an empty node. The counters are those of NVIDIA's DRA driver in which
// its profiles differ: the multiprocessors, and each memory slice. The devices are in the order of the
// memory slice at which they begin, or in that of their GPUs.
func newA100s(startMajor bool) *placement.Partitioned {
	counters := []int64{computeSlices * smPerSlice}
	for range memorySlices {
		counters = append(counters, 1)
	}
	var partitions []placement.Partition
	var starts []int
	for i, p := range a100 {
		for _, start := range p.starts {
			uses := make([]int64, len(counters))
			uses[0] = int64(p.compute * smPerSlice)
			for slice := range p.memory {
				uses[1+start+slice] = 1
			}
			partitions, starts = append(partitions, placement.Partition{Profile: i, Uses: uses}), append(starts, start)
		}
	}
	n := &placement.Partitioned{Layout: placement.NewLayout(counters, partitions), GPUs: make([]placement.State, gpusPerNode)}
	for gpu := range gpusPerNode {
		for i := range partitions {
			n.Devices = append(n.Devices, placement.Device{GPU: gpu, Partition: i})
		}
	}
	if startMajor {
		slices.SortStableFunc(n.Devices, func(a, b placement.Device) int { return cmp.Compare(starts[a.Partition], starts[b.Partition]) })
	}
	return n
}

// partitionArm is a way to choose the node: the one with the lowest cost, the first of equal ones.
type partitionArm struct {
	name string
	cost func(c *partitionCluster, node, profile int) float64
}

var partitionArms = []partitionArm{
	{"any node", func(c *partitionCluster, _, _ int) float64 { return c.random.Float64() }},
	{"fullest node", func(c *partitionCluster, node, _ int) float64 { return -float64(c.used[node]) }},
	{"node by value, nothing learned", func(c *partitionCluster, node, profile int) float64 { return c.loss(c.even, node, profile) }},
	{"node by value, mix learned", func(c *partitionCluster, node, profile int) float64 { return c.loss(c.values, node, profile) }},
}

func (c *partitionCluster) loss(v *placement.PartitionValues, node, profile int) float64 {
	n := c.nodes[node]
	d, _ := n.First(profile)
	lost, _ := v.Loss(n.GPUs[d.GPU], d.Partition)
	return float64(lost + c.order[node])
}

// partitionCluster is a cluster during a measurement.
type partitionCluster struct {
	random  *rand.Rand
	nodes   []*placement.Partitioned
	order   []placement.Cost
	used    []int   // compute slices, by node
	held    [][]int // partitions in use, by node and GPU
	running grants
	came    []float64 // by profile
	learned int       // how many requests values are learned from
	values  *placement.PartitionValues
	even    *placement.PartitionValues // of a mix with all profiles
}

// grant is a partition that is in use until a time.
type grant struct {
	until         float64
	node, compute int
	device        placement.Device
}

// grants are a heap, the first to end at its top.
type grants []grant

func (g grants) Len() int           { return len(g) }
func (g grants) Less(i, j int) bool { return g[i].until < g[j].until }
func (g grants) Swap(i, j int)      { g[i], g[j] = g[j], g[i] }
func (g *grants) Push(x any)        { *g = append(*g, x.(grant)) }
func (g *grants) Pop() any {
	last := (*g)[len(*g)-1]
	*g = (*g)[:len(*g)-1]
	return last
}

func newPartitionCluster(seed uint64, startMajor bool) *partitionCluster {
	c := &partitionCluster{random: rand.New(rand.NewPCG(seed, 0)), used: make([]int, partitionNodes), came: make([]float64, len(a100))}
	c.held = make([][]int, partitionNodes*gpusPerNode)
	for i := range partitionNodes {
		c.nodes, c.order = append(c.nodes, newA100s(startMajor)), append(c.order, placement.Order(fmt.Sprint("node-", i)))
	}
	c.even = placement.NewPartitionValues(c.nodes[0].Layout, nil)
	c.values = c.even
	return c
}

// learn counts a request, and sometimes learns from all of them.
func (c *partitionCluster) learn(profile int) {
	c.came[profile]++
	all := 0
	for _, n := range c.came {
		all += int(n)
	}
	if learned := placement.ModelPods(all, partitionNodes); learned != c.learned {
		c.learned, c.values = learned, placement.NewPartitionValues(c.nodes[0].Layout, c.came)
	}
}

// end ends what ends until now.
func (c *partitionCluster) end(now float64) {
	for len(c.running) > 0 && c.running[0].until <= now {
		g := heap.Pop(&c.running).(grant)
		n, held := c.nodes[g.node], &c.held[g.node*gpusPerNode+g.device.GPU]
		c.used[g.node] -= g.compute
		at := slices.Index(*held, g.device.Partition)
		*held = slices.Delete(*held, at, at+1)
		state := placement.State(0)
		for _, partition := range *held {
			state, _ = n.Layout.Take(state, partition)
		}
		n.GPUs[g.device.GPU] = state
	}
}

// place gives a request its first device on the best node, if it fits on any.
func (c *partitionCluster) place(arm *partitionArm, profile int, until float64) bool {
	best, lowest := -1, math.Inf(1)
	for i, n := range c.nodes {
		if _, fits := n.First(profile); fits {
			if cost := arm.cost(c, i, profile); cost < lowest {
				best, lowest = i, cost
			}
		}
	}
	if best < 0 {
		return false
	}
	n := c.nodes[best]
	d, _ := n.First(profile)
	n.GPUs[d.GPU], _ = n.Layout.Take(n.GPUs[d.GPU], d.Partition)
	held := &c.held[best*gpusPerNode+d.GPU]
	*held = append(*held, d.Partition)
	c.used[best] += a100[profile].compute
	heap.Push(&c.running, grant{until, best, a100[profile].compute, d})
	return true
}

// serve returns the served share of the compute slices that are requested.
func (c *partitionCluster) serve(ctx context.Context, arm *partitionArm, weights []float64, load float64) (float64, error) {
	sum, mean := 0.0, 0.0
	for i, w := range weights {
		sum += w
		mean += w * float64(a100[i].compute)
	}
	rate := load * partitionNodes * gpusPerNode * computeSlices / (mean / sum)
	arrivals := rand.New(rand.NewPCG(c.random.Uint64(), 1)) // the same for each arm
	requested, served := 0.0, 0.0
	for now := 0.0; now < partitionEnd; {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		now += arrivals.ExpFloat64() / rate
		until, at, profile := now+arrivals.ExpFloat64(), arrivals.Float64()*sum, 0
		for at -= weights[profile]; at >= 0 && profile < len(weights)-1; at -= weights[profile] {
			profile++
		}
		c.end(now)
		c.learn(profile)
		ok := c.place(arm, profile, until)
		if now < partitionWarmUp {
			continue
		}
		requested += float64(a100[profile].compute)
		if ok {
			served += float64(a100[profile].compute)
		}
	}
	return served / requested, nil
}

// servePartitions measures all arms, and writes a table.
func (b *bench) servePartitions(ctx context.Context) error {
	type row struct {
		load       float64
		startMajor bool
		arm        partitionArm
		served     [][]float64 // by mix and seed
	}
	var rows []*row
	var tasks []task
	for _, load := range []float64{0.9, 1.1} {
		for _, startMajor := range []bool{true, false} {
			for _, arm := range partitionArms {
				r := &row{load, startMajor, arm, make([][]float64, len(requestMixes))}
				rows = append(rows, r)
				for m, mix := range requestMixes {
					r.served[m] = make([]float64, b.seeds)
					for i := range b.seeds {
						tasks = append(tasks, task{fmt.Sprintf("partitions, load %.1f, %s, %s: %s, seed %d", load, listed(startMajor), mix.name, arm.name, firstSeed+i), func(ctx context.Context) (result string, err error) {
							r.served[m][i], err = newPartitionCluster(uint64(firstSeed+i), startMajor).serve(ctx, &arm, mix.weights, load)
							return fmt.Sprintf("%.2f %% served", 100*r.served[m][i]), err
						}})
					}
				}
			}
		}
	}
	if err := playAll(ctx, tasks, b.progress); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "\nMIG partitions, %d nodes with %d GPUs, %d seeds; compute slices served, in %%:\n", partitionNodes, gpusPerNode, b.seeds)
	head := []string{"load", "devices listed", ""}
	for _, mix := range requestMixes {
		head = append(head, mix.name)
	}
	table := trials.NewTable(b.out, head...)
	for _, r := range rows {
		cells := []any{fmt.Sprintf("%.1f", r.load), listed(r.startMajor), r.arm.name}
		for _, served := range r.served {
			cells = append(cells, percent(served))
		}
		table.Row(cells...)
	}
	return table.Flush()
}

func listed(startMajor bool) string {
	if startMajor {
		return "start-major"
	}
	return "GPU-major"
}

// percent formats the mean and the standard deviation.
func percent(shares []float64) string {
	values := make([]float64, len(shares))
	for i, x := range shares {
		values[i] = 100 * x
	}
	return trials.Figures(values).Text(2)
}
