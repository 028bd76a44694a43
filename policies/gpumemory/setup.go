package gpumemory

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/internal/placement/strategy"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
)

// Config is the configuration of the policy.
type Config struct {
	// NodeAgent is what gives containers their GPUs on the nodes: kai-gpu-fractioning, the NRI plugin
	// of NVIDIA's container toolkit, or the gpushare device plugin (the default).
	NodeAgent NodeAgent `json:"nodeAgent" values:"GPUFractioning,ContainerToolkit,GPUShare"`
	// Unit is the unit in which the gpushare device plugin counts memory, its flag --memory-unit.
	// Default GiB. Not for other agents, with which it is MiB.
	Unit Unit `json:"unit" values:",GiB,MiB"`
	// GPUSelection says which GPU of a node a pod gets: the one with the least free memory that is
	// enough (BinPack, the default), or the one with the most.
	GPUSelection policy.ScoringStrategyType `json:"gpuSelection" values:"BinPack,Spread"`
	// ScoringStrategy says which nodes are better.
	ScoringStrategy ScoringStrategy `json:"scoringStrategy"`
	// SizesFrom is where a node declares the memory of each GPU by index: "16,16,32", in a label
	// "16_16_32". Default: GPUs of one size.
	SizesFrom *fields.From `json:"sizesFrom"`
	// ModelLabel is the key of the node label with the model of its GPUs; on nodes of gpushare,
	// maybe aliyun.accelerator/nvidia_name.
	ModelLabel string `json:"modelLabel" required:"must not be empty" form:"key"`
	// ModelAnnotation is the key of a pod annotation with the allowed GPU models, separated by
	// commas. Pods without it allow any.
	ModelAnnotation string `json:"modelAnnotation" required:"must not be empty" form:"key"`
	// MultiGPU says that the gpushare device plugin supports equal shares of several GPUs for one pod, with
	// the annotation scheduler.framework.gpushare.allocation. The original does not.
	MultiGPU bool `json:"multiGPU"`
	// MultiContainer says that the gpushare device plugin supports several containers with GPU memory
	// in a pod. The original does not.
	MultiContainer bool `json:"multiContainer"`
	// SimulatedGPUs are the GPUs of each node that reports none, to try Outboard in a cluster
	// without GPUs: containers run without them. Also set ignoredByScheduler in managedResources.
	// Default: none.
	SimulatedGPUs *SimulatedGPUs `json:"simulatedGPUs"`
}

// SimulatedGPUs are equal GPUs of a node.
type SimulatedGPUs struct {
	// Count is how many the node has.
	Count int64 `json:"count" limits:"1..64"`
	// Memory is that of each GPU, in the unit.
	Memory int64 `json:"memory" limits:"1.."`
}

// NodeAgent is what gives containers their GPUs on a node.
type NodeAgent string

// The agents. Each has a file of its own.
const (
	GPUFractioning   NodeAgent = "GPUFractioning"
	ContainerToolkit NodeAgent = "ContainerToolkit"
	GPUShare         NodeAgent = "GPUShare"
)

// Unit is what the device plugin counts GPU memory in.
type Unit string

// The units of the gpushare device plugin, as in its flag --memory-unit.
const (
	GiB Unit = "GiB"
	MiB Unit = "MiB"
)

// ScoringStrategy is which nodes are better.
type ScoringStrategy struct {
	// Type says which nodes are better: BinPack (the default), with less free GPU memory; Spread,
	// with more; LeastWaste, where the pods that usually arrive can still use most.
	Type policy.ScoringStrategyType `json:"type" values:"BinPack,Spread,LeastWaste"`
}

// LeastWaste prefers nodes, and GPUs, where the least is wasted of what the pods that usually come
// could use. It is a ScoringStrategyType of this policy alone.
const LeastWaste policy.ScoringStrategyType = "LeastWaste"

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("GPUMemory", Defaults, New) }

// Defaults is the configuration of a policy about which nothing is said.
func Defaults() Config {
	return Config{
		NodeAgent:       GPUShare,
		GPUSelection:    policy.BinPack,
		ScoringStrategy: ScoringStrategy{Type: policy.BinPack},
		ModelLabel:      "nvidia.com/gpu.product",
		ModelAnnotation: "outboard.dev/gpu-models",
	}
}

// New returns the policy, or an aggregate of field.Error values.
func New(config Config) (policy.Policy, error) { return build(config, strategy.LeastWaste()) }

// NewWith returns the policy with another strategy in place of LeastWaste, to compare it with that;
// other modules cannot name one.
func NewWith(config Config, by strategy.Strategy) (policy.Policy, error) {
	config.ScoringStrategy.Type = LeastWaste
	return build(config, by)
}

func build(config Config, leastWaste strategy.Strategy) (policy.Policy, error) {
	if errs := config.validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return newGPUMemory(config, leastWaste), nil
}

func (c *Config) validate() field.ErrorList {
	errs := fields.Check(nil, c)
	_, gpushare := c.agent().(*gpuShare)
	for _, f := range []struct {
		name string
		set  bool
	}{{"unit", c.Unit != ""}, {"multiGPU", c.MultiGPU}, {"multiContainer", c.MultiContainer}} {
		if f.set && !gpushare {
			errs = append(errs, field.Forbidden(field.NewPath(f.name), fmt.Sprintf("only for nodeAgent: %s; remove it: %s counts in MiB, and allows several GPUs and containers", GPUShare, c.NodeAgent)))
		}
	}
	if c.ScoringStrategy.Type == LeastWaste && c.GPUSelection == policy.Spread {
		errs = append(errs, field.Invalid(field.NewPath("gpuSelection"), c.GPUSelection, fmt.Sprintf("scoringStrategy.type: %s selects the GPU as well", LeastWaste)))
	}
	return errs
}
