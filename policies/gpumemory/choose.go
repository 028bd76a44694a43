package gpumemory

import (
	"cmp"
	"slices"

	"outboard.dev/outboard/policy"
)

// gpuOrder compares two GPUs on which a pod fits, the better one first, as in
// [slices.SortFunc].
type gpuOrder func(a, b gpu) int

var gpuOrders = map[GPUSelection]gpuOrder{
	BestFit:    func(a, b gpu) int { return cmp.Compare(a.free(), b.free()) },
	SpreadGPUs: func(a, b gpu) int { return cmp.Compare(b.free(), a.free()) },
}

// nodeScorer scores a node on whose healthy GPUs so much would be used with the
// pod, of more than 0 and at least used.
type nodeScorer func(used, capacity int64) int64

var nodeScorers = map[ScoringStrategyType]nodeScorer{
	BinPack:     func(used, capacity int64) int64 { return policy.MaxScore * used / capacity },
	SpreadNodes: func(used, capacity int64) int64 { return policy.MaxScore * (capacity - used) / capacity },
}

// choose returns the indexes of the GPUs the pod gets, in order; nil when there
// are too few on which it fits.
//
// The device plugin does not know which of the pending pods of one size on its node
// it is asked for, and takes the one that was bound first. So that this does not
// matter, a pod goes to the GPU of another of its size that has not been served
// yet, if it fits there, whatever the order says. Otherwise it gets the preferred GPU,
// if there is one (0 or more) and it fits.
func (p *gpuMemory) choose(r *request, b *usage, preferred int) []int {
	var fitting, together []int
	for i, c := range b.gpus {
		if r.fits(c) {
			fitting = append(fitting, i)
			if r.gpus == 1 && !r.whole() && b.unserved[r.memory]&(1<<i) != 0 {
				together = append(together, i)
			}
		}
	}
	if len(together) > 0 {
		fitting = together
	} else if r.gpus == 1 && slices.Contains(fitting, preferred) {
		return []int{preferred}
	}
	if int64(len(fitting)) < r.gpus {
		return nil
	}
	slices.SortStableFunc(fitting, func(i, j int) int { return p.order(b.gpus[i], b.gpus[j]) })
	chosen := fitting[:r.gpus]
	slices.Sort(chosen)
	return chosen
}
