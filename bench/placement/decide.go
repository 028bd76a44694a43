package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/bench/strategies"
	"outboard.dev/outboard/bench/trials"
	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/internal/simulate"
	"outboard.dev/outboard/test/openb"
)

// This file measures the time of a decision in a cluster that stays nearly full, while pods are
// created and deleted.

// heldAt is the part of the GPUs in use.
const heldAt = 0.9

// mostDecisions are timed among each of these numbers of nodes.
const mostDecisions = 20000

var sizes = []int{1213, 5000, 20000}

// deciders are compared, each with the first.
var deciders = []struct {
	name string
	new  func(*held) (decider, error)
	// nodes bounds the decisions: about so many nodes are looked at by what looks at all.
	nodes int
}{
	{"BestFit, a look at every node", func(h *held) (decider, error) { return newScan(h), nil }, 20e6},
	{"BestFit, a filter call about all nodes", func(h *held) (decider, error) { return newAsked(h, bestFit, 100) }, 2e6},
	{"LeastWaste, a filter call about all nodes", func(h *held) (decider, error) { return newAsked(h, leastWasteLearned, 100) }, 2e6},
	{"BestFit, a filter call as by default", func(h *held) (decider, error) { return newAsked(h, bestFit, 0) }, 2e6},
	{"LeastWaste, a filter call as by default", func(h *held) (decider, error) { return newAsked(h, leastWasteLearned, 0) }, 2e6},
}

// decider finds a place for the pod of a job.
type decider interface {
	// prepare does what is not part of a decision.
	prepare() error
	best(job int) (node, gpu int, ok bool)
	// placed and removed report that the free resources of the node have changed.
	placed(p placed)
	removed(p placed)
}

// held is a cluster with a constant use.
type held struct {
	world   *simulate.World
	jobs    []openb.Job
	shapes  []placement.Shape // of the jobs
	nodes   []*placement.Node
	objects []*corev1.Node // of the nodes
	running []placed
	count   int // of the pods that ever ran
	random  *rand.Rand
	// In thousandths of a GPU:
	all, used int64
}

// placed is a pod on a node.
type placed struct {
	id, job, node int
	gpus          []int
}

// newHeld returns a cluster that first fit has filled.
func newHeld(w *simulate.World, jobs []openb.Job, size int) *held {
	h := &held{world: w, jobs: jobs, random: rand.New(rand.NewPCG(firstSeed, uint64(size)))}
	for i := range size {
		object := w.Nodes[i%len(w.Nodes)].DeepCopy()
		object.Name = fmt.Sprintf("%s-%d", object.Name, i/len(w.Nodes))
		h.objects, h.nodes = append(h.objects, object), append(h.nodes, nodeOf(object))
		h.all += int64(len(h.nodes[i].GPUs)) * placement.Whole
	}
	for _, j := range jobs {
		h.shapes = append(h.shapes, shapeOf(j.Pod))
	}
	from := map[placement.Shape]int{} // the first node that may have room
	for h.used < h.target() {
		job := h.random.IntN(len(jobs))
		s := h.shapes[job]
		node := from[s]
		for node < size && !h.nodes[node].Fits(s) {
			node++
		}
		if from[s] = node; node < size {
			h.add(job, node, placement.FirstFree)
		}
	}
	return h
}

func (h *held) target() int64 { return int64(heldAt * float64(h.all)) }

func (h *held) add(job, node, gpu int) placed {
	h.count++
	p := placed{h.count, job, node, take(h.nodes[node], h.shapes[job], gpu)}
	h.running = append(h.running, p)
	h.used += int64(len(p.gpus)) * h.shapes[job].Share
	return p
}

// end ends a random pod.
func (h *held) end(d decider) {
	i, last := h.random.IntN(len(h.running)), len(h.running)-1
	p := h.running[i]
	h.running[i] = h.running[last]
	h.running = h.running[:last]
	h.used -= int64(len(p.gpus)) * h.shapes[p.job].Share
	give(h.nodes[p.node], h.shapes[p.job], p.gpus)
	d.removed(p)
}

// take takes what the shape requests, which must fit, from the given GPU of the node or the first
// ones with room, and returns the indices of the GPUs.
func take(n *placement.Node, s placement.Shape, gpu int) (taken []int) {
	n.CPU, n.Memory = n.CPU-s.CPU, n.Memory-s.Memory
	for i := range n.GPUs {
		if len(taken) < s.GPUs && n.GPUs[i].Fits(s) && (gpu == placement.FirstFree || gpu == i) {
			n.GPUs[i].Take(s)
			taken = append(taken, i)
		}
	}
	return taken
}

// give returns what take has taken of the node.
func give(n *placement.Node, s placement.Shape, gpus []int) {
	n.CPU, n.Memory = n.CPU+s.CPU, n.Memory+s.Memory
	for _, i := range gpus {
		if s.Share == 0 {
			n.GPUs[i].Free = n.GPUs[i].Size
		} else {
			n.GPUs[i].Free += s.Share
		}
	}
}

// play makes decisions, and returns the time of each, including its changes.
func (h *held) play(ctx context.Context, d decider, decisions int) ([]time.Duration, error) {
	var took []time.Duration
	for len(took) < decisions {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		for h.used >= h.target() {
			h.end(d)
		}
		if err := d.prepare(); err != nil {
			return nil, err
		}
		job := h.random.IntN(len(h.jobs))
		began := time.Now()
		if node, gpu, ok := d.best(job); ok {
			d.placed(h.add(job, node, gpu))
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// scan evaluates every node, with only the arithmetic.
type scan struct {
	held *held
	rate func(*placement.Node, placement.Shape) placement.Offers
}

func newScan(h *held) *scan {
	cpu, gpus := int64(0), 0
	for _, n := range h.nodes {
		cpu, gpus = max(cpu, n.CPUCapacity), max(gpus, len(n.GPUs))
	}
	return &scan{h, strategies.NewBestFit(cpu, gpus).Rate}
}

func (s *scan) prepare() error { return nil }
func (s *scan) placed(placed)  {}
func (s *scan) removed(placed) {}

func (s *scan) best(job int) (node, gpu int, ok bool) {
	var best placement.Cost
	for i, n := range s.held.nodes {
		offers := s.rate(n, s.held.shapes[job])
		for _, o := range offers.All() {
			if !ok || o.Cost < best {
				node, gpu, best, ok = i, int(o.GPU), o.Cost, true
			}
		}
	}
	return node, gpu, ok
}

// decide measures all deciders with all sizes, and writes a table.
func (b *bench) decide(ctx context.Context) error {
	fmt.Fprintf(b.out, "\nDecisions, %.0f %% of the GPUs in use:\n", 100*heldAt)
	table := trials.NewTable(b.out, "nodes", "", "decisions", "median", "p99", "max", "median beside the first")
	for _, size := range sizes {
		first := time.Duration(0)
		for _, d := range deciders {
			fmt.Fprintf(b.progress, "decisions among %d nodes: %s\n", size, d.name)
			h := newHeld(b.world, b.jobs, size)
			decider, err := d.new(h)
			if err != nil {
				return err
			}
			decisions := min(mostDecisions, d.nodes/size)
			if _, err := h.play(ctx, decider, decisions/10); err != nil { // to warm up
				return err
			}
			took, err := h.play(ctx, decider, decisions)
			if err != nil {
				return err
			}
			slices.Sort(took)
			median := trials.Quantile(took, 0.5)
			if first == 0 {
				first = median
			}
			table.Row(size, d.name, len(took), median, trials.Quantile(took, 0.99), trials.Quantile(took, 1),
				fmt.Sprintf("%.2f", float64(median)/float64(first)))
		}
	}
	return table.Flush()
}
