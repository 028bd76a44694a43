package gpumemory

import (
	"slices"
	"strconv"
	"strings"

	"outboard.dev/outboard/policy/allocations"
)

// podState is what the policy reads from a pod on a node.
type podState struct {
	memory, count int64         // of GPUs, as in requested
	indexes       []int         // of the GPUs in its annotation: see parseIndexes; nil: no annotation
	shares        map[int]int64 // see allocated
	pending       bool
	marked        bool // has an annotation that says whether the device plugin has given the pod its GPU
	notAssigned   bool // and that it has not
	foreign       bool // has GPUs that nothing names
	holder        allocations.Holder
}

func (s *podState) unserved() bool { return s.pending && s.notAssigned }

// annotated appends what a pod on the node holds according to its annotations, whatever tool wrote
// them. The amount comes from the pod's limits, which are immutable.
func annotated(all []holding, pod *podState, hw *hardware) []holding {
	if pod.memory == 0 && pod.count == 0 {
		return all
	}
	h := holding{holder: &pod.holder, total: pod.memory, unserved: pod.unserved()}
	if pod.shares != nil {
		for h.gpu, h.amount = range pod.shares {
			all = append(all, h)
		}
		return all
	}
	indexes := pod.indexes
	if indexes == nil && len(hw.capacities) == 1 {
		indexes = []int{0} // the device plugin gives the only GPU to a pod without an annotation
	}
	switch {
	case pod.memory > 0:
		for _, h.gpu = range indexes {
			h.amount = (pod.memory-1)/int64(len(indexes)) + 1
			all = append(all, h)
		}
		return all
	case slices.Equal(indexes, []int{everyGPU}):
		indexes = slices.Repeat([]int{anyGPU}, int(min(pod.count, maxGPUs)))
	}
	for _, h.gpu = range indexes[:min(int64(len(indexes)), pod.count)] {
		h.amount = hw.capacity(h.gpu)
		all = append(all, h)
	}
	return all
}

// parseIndexes returns everyGPU unless the text is a list of different indices.
func parseIndexes(text string) []int {
	var indexes []int
	for part := range strings.SplitSeq(text, ",") {
		i, err := strconv.Atoi(part)
		if err != nil || i < 0 || len(indexes) == maxGPUs || slices.Contains(indexes, i) {
			return []int{everyGPU}
		}
		indexes = append(indexes, i)
	}
	return indexes
}
