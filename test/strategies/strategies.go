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
	ScoreBestFit policy.Packing = "BestFit"
	ScoreFGD     policy.Packing = "FGD"
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

// New is gpumemory.New for a configuration whose scoring strategy may be one of this package.
func New(config gpumemory.Config) (policy.Policy, error) {
	switch config.ScoringStrategy.Type {
	case ScoreBestFit:
		return gpumemory.NewWith(config, BestFitOf(maxCPU))
	case ScoreFGD:
		return gpumemory.NewWith(config, FGD())
	}
	return gpumemory.New(config)
}
