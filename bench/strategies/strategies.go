// Package strategies holds ways to rank nodes for pods that share GPUs, for comparisons with least
// waste, the strategy of GPUMemory: best fit, and Fragmentation Gradient Descent. They are not
// meant for use in a cluster: see docs/which-gpu-policy.md.
package strategies

import (
	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/internal/placement/strategy"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy"
)

// The types of scoring strategies that New knows in addition to those of GPUMemory.
const (
	ScoreBestFit policy.ScoringStrategyType = "BestFit"
	ScoreFGD     policy.ScoringStrategyType = "FGD"
	// ScoreNone rates all nodes equally.
	ScoreNone policy.ScoringStrategyType = "None"
)

// FGD is Fragmentation Gradient Descent.
func FGD() strategy.Strategy {
	return strategy.Strategy{Name: string(ScoreFGD), RemembersAll: true, Rater: func(mix *placement.Mix, nodes []placement.Kind) strategy.Rater {
		return strategy.Rater{Rate: NewFragmentation(mix, nodes).Rate}
	}}
}

// maxCPU is the CPU of the largest node of the published trace, in thousandths of a core.
const maxCPU = 128000

// BestFitOf returns best fit for nodes with at most this CPU, in thousandths of a core.
func BestFitOf(cpu int64) strategy.Strategy {
	return strategy.Strategy{Name: string(ScoreBestFit), Rater: func(_ *placement.Mix, nodes []placement.Kind) strategy.Rater {
		gpus := 0
		for _, kind := range nodes {
			gpus = max(gpus, kind.GPUs)
		}
		return strategy.Rater{Rate: NewBestFit(cpu, gpus).Rate}
	}}
}

// Even is a strategy for which all nodes with room are equal, so that kube-scheduler's own scores decide. A share gets
// the GPU with the least sufficient room.
func Even() strategy.Strategy {
	return rateNodes(string(ScoreNone), func(*placement.Node, placement.Shape) placement.Cost { return 0 })
}

// Packed rates nodes by what a pod with GPUs leaves free of them: as GPUMemory does with BinPack and Spread.
func Packed(packing policy.ScoringStrategyType) strategy.Strategy {
	return rateNodes(string(packing), func(n *placement.Node, s placement.Shape) placement.Cost {
		if s.GPUs == 0 {
			return 0
		}
		gpus := int64(len(n.GPUs)) * placement.Whole
		used := gpus - int64(freeGPUs(n)*placement.Whole-float64(s.GPUs)*s.On(n.Kind()))
		return -placement.Cost(packing.Score(used, gpus))
	})
}

// freeGPUs returns how much of the node's GPUs is free together, relative to the largest one.
func freeGPUs(n *placement.Node) float64 {
	sum := 0.0
	for _, g := range n.GPUs {
		sum += float64(g.Free)
	}
	return sum / float64(max(1, n.Kind().Size))
}

func rateNodes(name string, cost func(*placement.Node, placement.Shape) placement.Cost) strategy.Strategy {
	rate := func(n *placement.Node, s placement.Shape) (offers placement.Offers) {
		if n.Fits(s) {
			offers.Add(placement.Offer{Cost: cost(n, s), GPU: tightest(n, s)})
		}
		return offers
	}
	return strategy.Strategy{Name: name, Rater: func(*placement.Mix, []placement.Kind) strategy.Rater { return strategy.Rater{Rate: rate} }}
}

// FirstFit returns the strategy for nodes where a pod gets the first GPUs with room, as kube-scheduler allocates
// devices.
func FirstFit(by strategy.Strategy) strategy.Strategy {
	rater := by.Rater
	by.Rater = func(mix *placement.Mix, nodes []placement.Kind) strategy.Rater {
		r := rater(mix, nodes)
		rate := r.Rate
		r.Rate = func(n *placement.Node, s placement.Shape) placement.Offers {
			first := *n
			first.FirstFit = true
			return rate(&first, s)
		}
		return r
	}
	return by
}

// New is gpumemory.New for a configuration whose scoring strategy may be one of this package.
func New(config gpumemory.Config) (policy.Policy, error) {
	switch config.ScoringStrategy.Type {
	case ScoreBestFit, ScoreFGD, ScoreNone:
		return gpumemory.NewWith(config, of(config.ScoringStrategy.Type))
	}
	return gpumemory.New(config)
}

// NewFirstFit is New, where a pod gets the first GPUs with room.
func NewFirstFit(config gpumemory.Config) (policy.Policy, error) {
	return gpumemory.NewWith(config, FirstFit(of(config.ScoringStrategy.Type)))
}

func of(packing policy.ScoringStrategyType) strategy.Strategy {
	switch packing {
	case ScoreBestFit:
		return BestFitOf(maxCPU)
	case ScoreFGD:
		return FGD()
	case ScoreNone:
		return Even()
	case gpumemory.LeastWaste:
		return strategy.LeastWaste()
	}
	return Packed(packing)
}
