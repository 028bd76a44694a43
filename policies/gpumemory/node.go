package gpumemory

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

const (
	// maxGPUs bounds the GPUs of a node; each is a unit of its ledger.
	maxGPUs = snapshot.MaxLedgerUnits
	// everyGPU is the index of an unknown GPU: a part of it counts on each.
	everyGPU = -1
	// anyGPU is the index of an unknown GPU that a pod holds whole: holdings replaces it with one
	// that no other pod holds.
	anyGPU = -2
)

// hardware is what a node reports about its GPUs.
type hardware struct {
	problem    *policy.Reason // why none of its GPUs can be used
	reported   string         // what of the node causes the problem, for people; "" if the reason says it
	capacities []int64        // by index
	mixed      bool           // the GPUs have different sizes, so they are of different models
	renumbered bool           // the GPUs have other indices when one is gone
}

// capacity returns the size of the GPU, and 0 if the node does not have it.
func (hw *hardware) capacity(gpu int) int64 {
	if gpu < 0 || gpu >= len(hw.capacities) {
		return 0
	}
	return hw.capacities[gpu]
}

// orSimulated returns the simulated GPUs for a node that reports none.
func (c *Config) orSimulated(node *corev1.Node, hw hardware) hardware {
	if s := c.SimulatedGPUs; s != nil && hw.problem == notSharing {
		return c.hardwareOf(node, "simulatedGPUs", s.Count, s.Memory)
	}
	return hw
}

// hardwareOf returns what the node has: the count of GPUs of one size that something reports, or
// other sizes that the node declares.
func (c *Config) hardwareOf(node *corev1.Node, countedBy string, count, size int64) hardware {
	sizes, wrong := c.sizesOf(node, countedBy, count, size)
	for _, size := range sizes {
		if hint := c.Unit.implausible(size); hint != "" {
			wrong = fmt.Sprintf("has a GPU with %d %s, and no GPU has %s", size, c.Unit, hint)
			break
		}
	}
	if wrong != "" {
		return hardware{problem: invalidGPUs, reported: wrong}
	}
	return hardware{capacities: sizes, mixed: slices.ContainsFunc(sizes, func(size int64) bool { return size != sizes[0] })}
}

// before returns how many GPUs the node had when the pods in the ledger got theirs, if the GPUs may
// have other indices now; otherwise 0. A GPU without memory does not count.
func (hw *hardware) before(ledger *snapshot.Ledger) int {
	if !hw.renumbered || ledger == nil || len(ledger.Pods) == 0 {
		return 0
	}
	count, now := 0, 0
	for i := range ledger.Units {
		if ledger.Units[i].Capacity > 0 {
			count++
		}
	}
	for _, size := range hw.capacities {
		if size > 0 {
			now++
		}
	}
	if count == now {
		return 0
	}
	return count
}

// sizesOf returns the memory of each GPU, or what is wrong with what the node reports.
func (c *Config) sizesOf(node *corev1.Node, countedBy string, count, size int64) (sizes []int64, wrong string) {
	if text, declared := c.SizesFrom.Of(node); declared {
		sizes := parseSizes(slices.Collect(c.SizesFrom.Items(text)))
		switch {
		case sizes == nil:
			wrong = "must be whole numbers, at most 64"
		case count > 0 && count != int64(len(sizes)):
			wrong = fmt.Sprintf("must be as many numbers as %s, %d", countedBy, count)
		default:
			return sizes, ""
		}
		return nil, fmt.Sprintf("%s is %.100q, and %s", c.SizesFrom, text, wrong)
	}
	if count < 1 || count > maxGPUs {
		return nil, fmt.Sprintf("has %s %d, and that must be 1 to 64", countedBy, count)
	}
	return slices.Repeat([]int64{size}, int(count)), ""
}

// implausible returns which unit a size is probably in that no GPU has in this unit, or "". A GPU
// that is not used may have size 0.
func (u Unit) implausible(size int64) (hint string) {
	switch {
	case u == MiB && size > 0 && size < 512:
		return "so little: it seems to be in GiB"
	case u == MiB && size > 1<<20:
		return "so much"
	case u != MiB && size > 1<<10:
		return "so much: the device plugin seems to count in MiB"
	}
	return ""
}

func amount(of corev1.ResourceList, name corev1.ResourceName) int64 {
	q := of[name]
	return q.Value()
}

// parseSizes returns nil unless each part is a size.
func parseSizes(parts []string) []int64 {
	if len(parts) > maxGPUs {
		return nil
	}
	sizes := make([]int64, len(parts))
	for i, part := range parts {
		size, err := strconv.ParseInt(part, 10, 64)
		if err != nil || size < 0 {
			return nil
		}
		sizes[i] = size
	}
	return sizes
}

// usage is the state of the GPUs of a node, and which pods hold what.
type usage struct {
	problem  *policy.Reason // why no GPU can be used
	reported string
	gpus     []GPU // of the node, by index
	all      []GPU // gpus, and in order of index others of which pods hold something
	holders  allocations.Holders
	// unserved are the GPUs, as bits, of pods to which the device plugin has not given them yet, by
	// the total request of such a pod.
	unserved map[int64]uint64
	// used and capacity are the sums over all healthy GPUs, each used up to its capacity.
	used, capacity int64
	// mostFree and largest are the maxima over the healthy GPUs.
	mostFree, largest int64
}

// usageOf computes the usage with the given ledger, which may be nil, instead of the node's own.
// The GPUs have their Pods only if that is requested.
func (p *gpuMemory) usageOf(n *snapshot.Node, ledger *snapshot.Ledger, withPods bool) usage {
	hw := p.hardware.Of(n)
	u, ill := usage{problem: hw.problem, reported: hw.reported}, unhealthy(n)
	add := func(gpu int, capacity int64) {
		u.all = append(u.all, GPU{Index: gpu, Capacity: capacity, Healthy: gpu >= maxGPUs || ill&(1<<gpu) == 0})
	}
	for i, capacity := range hw.capacities {
		add(i, capacity)
	}
	held, foreign := p.holdings(n, ledger)
	switch before := hw.before(ledger); {
	case u.problem != nil:
	case before > 0:
		u.problem, u.reported = gpusChanged, fmt.Sprintf("has %d GPUs, and had %d when its pods got theirs", len(hw.capacities), before)
	case foreign != nil:
		u.problem, u.reported = wholeGPUs, fmt.Sprintf("pod %s/%s has GPUs that nothing names", foreign.Namespace, foreign.Name)
	}
	for _, h := range held {
		if h.gpu >= len(hw.capacities) && !slices.ContainsFunc(u.all, func(d GPU) bool { return d.Index == h.gpu }) {
			add(h.gpu, 0)
		}
	}
	slices.SortFunc(u.all, func(a, b GPU) int { return cmp.Compare(a.Index, b.Index) })
	u.gpus = u.all[:len(hw.capacities)]
	for i := range held {
		u.enter(&held[i], withPods)
	}
	for i := range u.gpus {
		if d := &u.gpus[i]; d.Healthy {
			u.used += min(d.Used, d.Capacity)
			u.capacity += d.Capacity
			u.mostFree, u.largest = max(u.mostFree, d.Free()), max(u.largest, d.Capacity)
		}
	}
	return u
}

func (u *usage) enter(h *holding, withPods bool) {
	u.holders.Add(h.holder.UID)
	for i := range u.all {
		d := &u.all[i]
		if h.gpu != d.Index && h.gpu != everyGPU {
			continue
		}
		d.Used = snapshot.AddAmounts(d.Used, h.amount)
		if h.unserved {
			d.Reserved = snapshot.AddAmounts(d.Reserved, h.amount)
		}
		if withPods {
			d.Pods = append(d.Pods, GPUPod{*h.holder, h.amount, h.unserved, h.gpu == everyGPU})
		}
	}
	if h.unserved && h.gpu >= 0 && h.gpu < len(u.gpus) {
		if u.unserved == nil {
			u.unserved = map[int64]uint64{}
		}
		u.unserved[h.total] |= 1 << h.gpu
	}
}

// holding is what one pod holds of one GPU.
type holding struct {
	holder   *allocations.Holder
	gpu      int // may be one that the node does not have, or everyGPU
	amount   int64
	total    int64 // the total request of the pod
	unserved bool  // the device plugin has not given it to the pod yet
}

// holdings lists what pods hold: by the allocations in the ledger, which may be nil, and for other
// pods by their annotations. A pod holds no more whole GPUs than it requests, whatever its
// annotations say: if they do not name them, it holds GPUs that no other pod does. A foreign pod
// holds GPUs that the list cannot name.
func (p *gpuMemory) holdings(n *snapshot.Node, ledger *snapshot.Ledger) (all []holding, foreign *allocations.Holder) {
	hw := p.hardware.Of(n)
	allocated, unallocated := allocations.On(n, ledger)
	all = make([]holding, 0, len(n.Pods))
	for _, i := range unallocated {
		pod := p.podStates.Of(n, i)
		if all = annotated(all, pod, hw); pod.foreign {
			foreign = &pod.holder
		}
	}
	for _, c := range allocated {
		index, err := strconv.Atoi(c.Unit)
		if err != nil || index < 0 {
			index = everyGPU
		}
		h := holding{holder: &c.Holder, gpu: index, amount: c.Amount, total: c.Total, unserved: true}
		if c.Index >= 0 {
			h.unserved = waits(p.podStates.Of(n, c.Index), c.Entry)
		}
		all = append(all, h)
	}
	for i := range all {
		if all[i].gpu != anyGPU {
			continue
		}
		free := 0
		for slices.ContainsFunc(all, func(h holding) bool { return h.gpu == free }) {
			free++
		}
		all[i].gpu, all[i].amount = free, hw.capacity(free)
	}
	return all, foreign
}

// waits reports whether the device plugin has not given the pod on the node yet what it has
// allocated. The entry of the ledger may be nil.
func waits(pod *podState, entry *snapshot.LedgerPod) bool {
	// The allocation of a pod may be known before its annotations.
	if !pod.marked && entry != nil {
		return pod.pending && entry.Annotations[assignedKey] == notAssigned
	}
	return pod.unserved()
}

// unhealthyGPUs are the ConfigMaps with the indices of unhealthy GPUs, under the key "gpus".
var unhealthyGPUs = snapshot.ConfigMapSource{Namespace: "kube-system", Prefix: "unhealthy-gpu-"}

// unhealthy returns the unhealthy GPUs as bits. It ignores invalid indices.
func unhealthy(n *snapshot.Node) uint64 {
	var gpus uint64
	for entry := range fields.List(n.ConfigMap(unhealthyGPUs)["gpus"], ",") {
		if i, err := strconv.Atoi(entry); err == nil && i >= 0 && i < maxGPUs {
			gpus |= 1 << i
		}
	}
	return gpus
}
