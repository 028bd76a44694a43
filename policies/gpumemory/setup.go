package gpumemory

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policies/gpumemory/strategy"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
)

// Unit is what the device plugin counts GPU memory in.
type Unit string

// The units of the gpushare device plugin, as in its flag --memory-unit.
const (
	GiB Unit = "GiB"
	MiB Unit = "MiB"
)

// CardChoice is which of the cards of a node that fit a pod gets.
type CardChoice string

const (
	// BestFit is the one with the least memory free.
	BestFit CardChoice = "bestFit"
	// SpreadCards is the one with the most memory free.
	SpreadCards CardChoice = "spread"
)

// NodeScore is which nodes are better.
type NodeScore string

const (
	// Binpack prefers nodes whose cards are fuller.
	Binpack NodeScore = "binpack"
	// SpreadNodes prefers nodes whose cards are emptier.
	SpreadNodes NodeScore = "spread"
	// LeastWaste prefers nodes, and cards, where the least is wasted of what the pods
	// that usually come could use; see [placement.Waste].
	LeastWaste NodeScore = "leastWaste"
)

// Config is the configuration of the policy.
type Config struct {
	// Unit is GiB (the default) or MiB. Numbers are the device plugin's whatever
	// it says: it names them in reasons.
	Unit Unit `json:"unit"`
	// ChooseCard is BestFit (the default) or SpreadCards. Of equal ones it is the
	// one with the lowest index.
	ChooseCard CardChoice `json:"chooseCard"`
	// ScoreNodes is Binpack (the default), SpreadNodes, or LeastWaste, which ranks the
	// nodes and chooses the card as well.
	ScoreNodes NodeScore `json:"scoreNodes"`
	// SizesFrom is the key of a node annotation, or else label, with the memory of
	// each card in order of index: "16,16,32", in a label "16-16-32" or
	// "16_16_32". Nodes without it have cards of one size. "" means that all have.
	SizesFrom string `json:"sizesFrom"`
	// ModelLabel is the key of the node label that names the model of its cards.
	ModelLabel string `json:"modelLabel"`
	// ModelAnnotation is the key of a pod annotation with the models that may be
	// used, separated by commas. Pods without it may use any.
	ModelAnnotation string `json:"modelAnnotation"`
	// MultiCard says that the device plugin gives a pod a share of each of several
	// cards, which the one of gpushare does not.
	MultiCard bool `json:"multiCard"`
	// MultiContainer says that the device plugin serves pods several of whose
	// containers ask for GPU memory, which the one of gpushare does not.
	MultiContainer bool `json:"multiContainer"`
}

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("GPUMemory", Defaults, New) }

// Defaults is the configuration of a policy about which nothing is said.
func Defaults() Config {
	return Config{
		Unit:            GiB,
		ChooseCard:      BestFit,
		ScoreNodes:      Binpack,
		ModelLabel:      "nvidia.com/gpu.product",
		ModelAnnotation: "outboard.dev/gpu-models",
	}
}

// New returns the policy, or an aggregate of field.Error values.
func New(config Config) (policy.Policy, error) {
	if errs := config.validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	if config.ScoreNodes == LeastWaste {
		by := strategy.LeastWaste()
		return newGPUMemory(config, &by), nil
	}
	return newGPUMemory(config, nil), nil
}

// NewWith returns the policy with another strategy than those of the configuration, to compare
// it with these. ScoreNodes is as with LeastWaste.
func NewWith(config Config, by strategy.Strategy) (policy.Policy, error) {
	config.ScoreNodes = LeastWaste
	if errs := config.validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return newGPUMemory(config, &by), nil
}

func (c *Config) validate() field.ErrorList {
	errs := fields.OneOf(field.NewPath("unit"), c.Unit, GiB, MiB)
	errs = append(errs, fields.OneOf(field.NewPath("chooseCard"), c.ChooseCard, BestFit, SpreadCards)...)
	errs = append(errs, fields.OneOf(field.NewPath("scoreNodes"), c.ScoreNodes, Binpack, SpreadNodes, LeastWaste)...)
	if c.ScoreNodes == LeastWaste && c.ChooseCard == SpreadCards {
		errs = append(errs, field.Invalid(field.NewPath("chooseCard"), c.ChooseCard, fmt.Sprintf("scoreNodes: %s chooses the card as well", c.ScoreNodes)))
	}
	errs = append(errs, fields.OptionalKey(field.NewPath("sizesFrom"), c.SizesFrom)...)
	errs = append(errs, fields.Key(field.NewPath("modelLabel"), c.ModelLabel)...)
	return append(errs, fields.Key(field.NewPath("modelAnnotation"), c.ModelAnnotation)...)
}
