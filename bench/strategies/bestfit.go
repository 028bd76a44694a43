package strategies

import "outboard.dev/outboard/internal/placement"

// BestFit rates a node by the remaining CPU and GPUs, each relative to the largest node and with
// equal weight, as in the experiments of the FGD paper: the cost is 0..100, rounded up. For a share
// it takes the GPU with the least sufficient room.
type BestFit struct {
	maxCPU, maxGPU float64
}

// NewBestFit returns a BestFit for nodes with at most this CPU, in thousandths of a core, and this
// number of GPUs.
func NewBestFit(maxCPU int64, maxGPUs int) *BestFit {
	return &BestFit{maxCPU: float64(max(1, maxCPU)), maxGPU: float64(max(1, maxGPUs) * placement.Whole)}
}

// Rate returns the offer of the node.
func (b *BestFit) Rate(n *placement.Node, s placement.Shape) placement.Offers {
	var offers placement.Offers
	if !n.Fits(s) {
		return offers
	}
	kind := n.Kind()
	left := float64(n.CPU-s.CPU)/b.maxCPU/2 + (freeGPUs(n)*placement.Whole-float64(s.GPUs)*s.On(kind))/b.maxGPU/2
	offers.Add(placement.Offer{Cost: 100 - placement.Cost(100*(1-left)), GPU: tightest(n, s)})
	return offers
}

// tightest returns the GPU with the least room that is enough for a share, or the first one with
// enough room if the node cannot select.
func tightest(n *placement.Node, s placement.Shape) int8 {
	if !s.Shares() {
		return placement.FirstFree
	}
	best := placement.FirstFree
	for i, g := range n.GPUs {
		if g.Fits(s) && (best == placement.FirstFree || !n.FirstFit && g.Free < n.GPUs[best].Free) {
			best = i
		}
	}
	return int8(best)
}
