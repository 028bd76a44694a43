package gpumemory

import (
	"outboard.dev/outboard/internal/placement/strategy"
	"outboard.dev/outboard/snapshot"
)

// GPUs returns the GPUs of the node, as a policy with the configuration counts them.
func GPUs(config Config, n *snapshot.Node) []GPU {
	return newGPUMemory(config, strategy.LeastWaste()).gpusOf(n)
}
