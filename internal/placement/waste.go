package placement

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
	"sync"
)

// orderSpan is the difference in cost between the first and the last node of the order, which keeps
// pods on nodes in use, and other nodes free. 70 to 600 thousandths are as good.
const orderSpan = 200 * milli

// Order returns the cost of a node for its position in the order of all nodes, a hash of its
// identifier, so that its position depends on no other node.
func Order(id string) Cost {
	h := fnv.New64a()
	h.Write([]byte(id))
	x := h.Sum64() // whose high bits hardly depend on the last letters
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return Cost(x % uint64(orderSpan))
}

// Waste rates placements by how much of the node could no longer be allocated. It is made from a
// Mix and the kinds of nodes in the cluster, and is immutable.
type Waste struct {
	mix      *Mix
	index    map[Kind]int16
	kinds    []Kind // by index, as are the tables
	tables   []tables
	turnover float64  // share of the arrived pods that have departed, 0..1
	scarce   []scarce // sets of models that some pods are restricted to
	groups   []group  // kinds of slots
	limits   map[Models]*models
	sets     []*models // of limits, each once
	demand   float64   // what the mix requests, in thousandths of GPUs

	parts sync.Map // of *PartitionValues, by layout and model, which are computed on first use
}

type tables struct {
	cpu, memory *table
	worth       []float64 // by the number of requested steps, in GPUs
}

// models is a set of models in a cluster.
type models struct {
	has       []bool // by kind
	all, none bool
}

func (m *models) within(other *models) bool {
	for i, has := range m.has {
		if has && !other.has[i] {
			return false
		}
	}
	return true
}

// NewWaste returns a Waste for a cluster of nodes of these kinds, one for each node.
func NewWaste(m *Mix, nodes []Kind) *Waste {
	w := &Waste{mix: m, index: map[Kind]int16{}, limits: map[Models]*models{}}
	sorted := slices.SortedFunc(slices.Values(nodes), compareKinds)
	counts := make([]float64, 0, 8)
	for _, kind := range sorted {
		if i := len(w.kinds); i == 0 || w.kinds[i-1] != kind {
			w.index[kind] = int16(i)
			w.kinds, counts = append(w.kinds, kind), append(counts, 0)
		}
		counts[len(counts)-1] += float64(kind.GPUs)
	}
	w.tables = make([]tables, len(w.kinds))
	w.learnTables()
	shapes := m.shapes()
	for i, s := range shapes {
		if w.limits[s.Models] == nil {
			w.limits[s.Models] = w.modelsOf(s.Models)
		}
		shapes[i].requested = w.requested(s.Shape, counts)
	}
	departed := 0.0
	for _, s := range shapes {
		w.demand += s.weight * s.requested
		departed += m.departed[s.Shape] * s.requested
	}
	if w.demand > 0 {
		w.turnover = math.Min(1, departed/w.demand)
	}
	w.learnScarce(shapes)
	w.learnGroups(shapes)
	return w
}

func compareKinds(a, b Kind) int {
	return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Size, b.Size))
}

// requested returns what the shape requests of all its GPUs together, in thousandths of the GPUs on
// which it fits, on average. counts are the numbers of GPUs by kind.
func (w *Waste) requested(s Shape, counts []float64) float64 {
	sum, gpus := 0.0, 0.0
	for i, kind := range w.kinds {
		if s.units(kind) <= kind.Size && w.limits[s.Models].has[i] {
			sum += counts[i] * s.On(kind)
			gpus += counts[i]
		}
	}
	if gpus == 0 {
		return 0
	}
	return float64(s.GPUs) * sum / gpus
}

// learnTables computes the tables for each kind of node.
func (w *Waste) learnTables() {
	for i, kind := range w.kinds {
		if kind.GPUs > 0 {
			steps := stepsOf(w.mix, kind)
			worth := worths(sizesOf(w.mix, kind, steps), steps)
			inCores := offersOf(w.mix, kind, worth, func(s Shape) float64 { return float64(s.CPU) / cpuCell })
			inCells := offersOf(w.mix, kind, worth, func(s Shape) float64 { return float64(s.Memory) / memoryCell })
			w.tables[i] = tables{newTable(inCores, steps), newTable(inCells, steps), worth}
		}
	}
}

// modelsOf returns the set of models in the cluster.
//
// Invariant: sets with the same kinds of nodes are one.
func (w *Waste) modelsOf(m Models) *models {
	set := &models{has: make([]bool, len(w.kinds)), all: true, none: true}
	for i, kind := range w.kinds {
		set.has[i] = m.Has(kind.Model)
		set.all, set.none = set.all && set.has[i], set.none && !set.has[i]
	}
	for _, known := range w.sets {
		if slices.Equal(known.has, set.has) {
			return known
		}
	}
	w.sets = append(w.sets, set)
	return set
}

// value returns how many thousandths of the GPUs will be allocated, beside this much CPU and
// memory, of which each GPU has a part in proportion to its free share.
func (w *Waste) value(kind int16, cpu, memory int64, gpus []GPU) float64 {
	t, size, total := &w.tables[kind], w.kinds[kind].Size, int64(0)
	for _, g := range gpus {
		total += g.Free
	}
	sum, last, lastValue := 0.0, int64(0), 0.0
	for _, g := range gpus {
		if g.Free == 0 {
			continue
		}
		if g.Free != last { // equal GPUs are often adjacent
			part, free := float64(g.Free)/float64(total), float64(g.Free)/float64(max(1, size))
			last, lastValue = g.Free, math.Min(t.cpu.at(free, float64(cpu)/cpuCell*part), t.memory.at(free, float64(memory)/memoryCell*part))
		}
		sum += lastValue
	}
	return sum
}

// worthOf returns the worth of the pod on a node of the kind, in thousandths of a GPU.
func (w *Waste) worthOf(s Shape, kind int16) float64 {
	worth := w.tables[kind].worth
	if s.GPUs == 0 || len(worth) == 0 {
		return 0
	}
	return float64(s.GPUs) * worth[stepsFor(s, w.kinds[kind], len(worth)-1)] * Whole
}

// Rate returns the offers of the node, without their price and without Order. A node of a kind that
// did not exist when the Waste was made has no offers.
func (w *Waste) Rate(n *Node, s Shape) Offers {
	var offers Offers
	if !n.Fits(s) {
		return offers // as for most nodes on a full cluster; before any lookup
	}
	if s.Profile != "" {
		return w.ratePart(n, s)
	}
	kind, known := w.index[n.Kind()]
	if !known {
		return offers
	}
	terms := Terms{kind: kind, whole: int8(wholes(n.GPUs)), charged: w.charged(n, kind, s)}
	before, part := w.value(kind, n.CPU, n.Memory, n.GPUs), w.worthOf(s, kind)
	loss := func(after []GPU) Cost {
		lost := before - w.value(kind, n.CPU-s.CPU, n.Memory-s.Memory, after) - part
		return Cost(math.Round(lost * float64(milli)))
	}
	var buffer [MaxGPUs]GPU
	gpus := append(buffer[:0], n.GPUs...)
	if !s.Shares() {
		TakeFirst(gpus, s)
		terms.takes = terms.whole - int8(wholes(gpus))
		offers.Add(Offer{Cost: loss(gpus) + w.crowding(n, kind, s), GPU: FirstFree, Terms: w.breaking(n, s, terms)})
		return offers
	}
	var best [2]Offer // on a GPU in use, on an unused one
	var found [2]bool
	for i := range gpus {
		if !gpus[i].Fits(s) || slices.Contains(n.GPUs[:i], n.GPUs[i]) {
			continue
		}
		takes := 0
		if gpus[i].whole() {
			takes = 1
		}
		gpus[i].Take(s)
		if lost := loss(gpus); !found[takes] || lost < best[takes].Cost {
			best[takes], found[takes] = Offer{Cost: lost, GPU: int8(i)}, true
		}
		if gpus[i] = n.GPUs[i]; n.FirstFit {
			break
		}
	}
	for takes := range best {
		if found[takes] {
			terms.takes = int8(takes)
			best[takes].Terms = w.breaking(n, s, terms)
			offers.Add(best[takes])
		}
	}
	return offers
}

// crowding returns the cost of a pod without GPUs that leaves too little CPU or memory on the node
// for the largest slot that still fits beside the pods without GPUs: the turnover, times the GPUs of
// the slot. Pods with GPUs end, and then nobody could use all of the node's GPUs.
func (w *Waste) crowding(n *Node, kind int16, s Shape) Cost {
	if s.GPUs > 0 || len(n.GPUs) < 2 || w.turnover == 0 {
		return 0
	}
	cpu, memory, most := n.CPUCapacity-n.PlainCPU, n.MemoryCapacity-n.PlainMemory, 0
	for i := range w.groups {
		g := &w.groups[i]
		if g.gpus > most && g.any(kind, cpu, memory, len(n.GPUs)) && !g.any(kind, cpu-s.CPU, memory-s.Memory, len(n.GPUs)) {
			most = g.gpus
		}
	}
	return Cost(math.Round(w.turnover * float64(most) * float64(OneGPU)))
}
