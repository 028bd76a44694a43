package placement

// BestFit rates a node by what is left of its CPU and GPUs, each relative to the
// largest node there is and with equal weight, as in the experiments of the FGD paper:
// the cost is 0..100, rounded up. Of the GPUs with room for a share it takes the one
// with the least room.
type BestFit struct {
	maxCPU, maxGPU float64
}

// NewBestFit returns a BestFit for nodes with at most so much CPU, in thousandths of
// a core, and so many GPUs.
func NewBestFit(maxCPU int64, maxGPUs int) *BestFit {
	return &BestFit{maxCPU: float64(max(1, maxCPU)), maxGPU: float64(max(1, maxGPUs) * Whole)}
}

// Rate returns the offer of the node.
func (b *BestFit) Rate(n *Node, s Shape) Offers {
	var offers Offers
	if !n.Fits(s) {
		return offers
	}
	kind := n.Kind()
	left := float64(n.CPU-s.CPU)/b.maxCPU/2 + (freeOf(n.GPUs, kind.Size)-float64(s.GPUs)*s.on(kind))/b.maxGPU/2
	offers.add(Offer{Cost: 100 - Cost(100*(1-left)), GPU: tightest(n, s)})
	return offers
}

// tightest is the GPU with the least room that is enough for a share.
func tightest(n *Node, s Shape) int8 {
	if !s.Shares() {
		return FirstFree
	}
	best := FirstFree
	for i, g := range n.GPUs {
		if g.fits(s) && (best == FirstFree || g.Free < n.GPUs[best].Free) {
			best = i
		}
	}
	return int8(best)
}
