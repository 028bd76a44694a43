package cost

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
)

// Config is the configuration of the policy. All prices are in one currency and for one period,
// such as an hour.
type Config struct {
	// Prices are the sources of node prices. The first with a price for the node counts.
	Prices []Source `json:"prices" required:"says where the prices of nodes are found"`
	// ScoringStrategy is the cost by which nodes are compared.
	ScoringStrategy ScoringStrategy `json:"scoringStrategy"`
	// MaxPrice is the highest cost at which a node fits, without the effect of sunkCost. Default:
	// no limit.
	MaxPrice *float64 `json:"maxPrice" limits:"0..1e+09"`
	// Spot says which nodes are spot nodes, and what that changes.
	Spot SpotConfig `json:"spot"`
	// WhenStale says what happens to a node whose price is missing or stale. Default Neutral.
	WhenStale policy.UnknownAction `json:"whenStale" values:"Neutral,Reject"`
}

// ScoringStrategyType says which cost nodes are compared by.
type ScoringStrategyType string

const (
	// PodCost is the cost of the part of the node that the pod takes.
	PodCost ScoringStrategyType = "PodCost"
	// NodeCost is the cost of the whole node.
	NodeCost ScoringStrategyType = "NodeCost"
)

// maxPrice bounds the prices that are believed, as the tags of prices do, so that no product of
// them overflows.
const maxPrice = 1e9

// ScoringStrategy is the cost by which nodes are compared. The lowest is best.
type ScoringStrategy struct {
	// Type says whose cost counts: that of the part of the node that the pod takes (PodCost, the
	// default), or of the whole node.
	Type ScoringStrategyType `json:"type" values:"PodCost,NodeCost"`
	// SunkCost makes an empty node count with its whole price, so that nodes in use are filled
	// first. For PodCost only. Default false.
	SunkCost *bool `json:"sunkCost"`
}

// Source is one place with prices: either Signal or PriceFrom.
type Source struct {
	// Signal is the name of a signal with prices: about nodes, or with KeyLabels
	// about keys.
	Signal string `json:"signal" oneOf:"source"`
	// KeyLabels are the keys of node labels whose values, joined by /, are the key of the node's
	// price in the signal.
	KeyLabels []string `json:"keyLabels" items:"must not be empty" form:"key"`
	// PriceFrom is where a node declares its price, such as 0.096.
	PriceFrom *fields.From `json:"priceFrom" oneOf:"source"`
}

// SpotConfig says which nodes are spot nodes, and which pods may run on them.
type SpotConfig struct {
	// NodeLabels are those of spot nodes, of which one must match. Default: the labels of
	// Karpenter, EKS, GKE and AKS.
	NodeLabels []fields.Match `json:"nodeLabels"`
	// FromPriority keeps pods of this priority and higher off spot nodes. Default: none.
	FromPriority *int32 `json:"fromPriority"`
}

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("Cost", Defaults, New) }

// Defaults is the configuration of a policy of which only the prices are missing.
func Defaults() Config {
	return Config{
		ScoringStrategy: ScoringStrategy{Type: PodCost},
		Spot: SpotConfig{
			NodeLabels: []fields.Match{
				{Key: "karpenter.sh/capacity-type", Values: []string{"spot"}},
				{Key: "eks.amazonaws.com/capacityType", Values: []string{"SPOT"}},
				{Key: "cloud.google.com/gke-spot", Values: []string{"true"}},
				{Key: "cloud.google.com/gke-preemptible", Values: []string{"true"}},
				{Key: "kubernetes.azure.com/scalesetpriority", Values: []string{"spot"}},
			},
		},
		WhenStale: policy.Neutral,
	}
}

// New returns the policy, or an aggregate of field.Error values.
func New(config Config) (policy.Policy, error) {
	if errs := config.validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return newCost(config), nil
}

func (c *Config) validate() field.ErrorList {
	errs := fields.Check(nil, c)
	prices := field.NewPath("prices")
	for i := range c.Prices {
		errs = append(errs, c.Prices[i].validate(prices.Index(i))...)
	}
	if c.ScoringStrategy.SunkCost != nil && c.ScoringStrategy.Type != PodCost {
		errs = append(errs, field.Forbidden(field.NewPath("scoringStrategy", "sunkCost"), "needs type: PodCost"))
	}
	return append(errs, c.Spot.validate(field.NewPath("spot"))...)
}

func (s *Source) validate(at *field.Path) field.ErrorList {
	if s.Signal == "" && len(s.KeyLabels) > 0 {
		return field.ErrorList{field.Forbidden(at.Child("keyLabels"), "needs signal")}
	}
	return nil
}

func (s *SpotConfig) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range s.NodeLabels {
		errs = append(errs, s.NodeLabels[i].CheckLabel(at.Child("nodeLabels").Index(i))...)
	}
	if len(s.NodeLabels) == 0 && s.FromPriority != nil {
		errs = append(errs, field.Forbidden(at.Child("fromPriority"), "needs nodeLabels, or no node is known as spot"))
	}
	return errs
}
