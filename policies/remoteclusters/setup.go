package remoteclusters

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
)

// Strategy is which clusters are better.
type Strategy string

const (
	// Spread prefers those with more left.
	Spread Strategy = "spread"
	// Binpack prefers those with less left.
	Binpack Strategy = "binpack"
)

const (
	maxWeight   = 100
	maxSettle   = time.Hour
	maxClusters = 1000
)

// Config is the configuration of the policy.
type Config struct {
	// ClusterLabel is the key of the node label whose value is the name of the cluster
	// that the node stands for. Nodes without it are home. Required.
	ClusterLabel string `json:"clusterLabel"`
	// Clusters are the others, at least one.
	Clusters []Cluster `json:"clusters"`
	// Strategy is Spread (the default) or Binpack.
	Strategy Strategy `json:"strategy"`
	// HomeScore is the score of nodes that are home, 0..100. Default 100: pods leave
	// home only when they must.
	HomeScore int32 `json:"homeScore"`
	// Settle is how long it may take until a pod that is bound to a node is counted in
	// the cluster it stands for, 0s..1h. Default 10s.
	Settle metav1.Duration `json:"settle"`
	// WhenStale is what to think of a cluster of which nothing current is known. Reject
	// (the default) or Neutral.
	WhenStale policy.WhenStale `json:"whenStale"`
}

// Cluster is one that nodes stand for.
type Cluster struct {
	// Name is the value of the label. Required, and unique.
	Name string `json:"name"`
	// Signal is the name of the signal that says what the cluster has left. Required,
	// and unique.
	Signal string `json:"signal"`
	// Weight is how much the cluster is preferred to others, 1..100. Default 1.
	Weight *int32 `json:"weight"`
}

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("RemoteClusters", Defaults, New) }

// Defaults is the configuration of a policy of which the label and the clusters are missing.
func Defaults() Config {
	return Config{
		Strategy:  Spread,
		HomeScore: int32(policy.MaxScore),
		Settle:    metav1.Duration{Duration: 10 * time.Second},
		WhenStale: policy.Reject,
	}
}

// New returns the policy, or an aggregate of field.Error values.
func New(config Config) (policy.Policy, error) {
	if errs := config.validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return newRemoteClusters(config), nil
}

func (c *Config) validate() field.ErrorList {
	var errs field.ErrorList
	label := field.NewPath("clusterLabel")
	if c.ClusterLabel == "" {
		errs = append(errs, field.Required(label, "says which nodes stand for another cluster"))
	} else {
		for _, message := range validation.IsQualifiedName(c.ClusterLabel) {
			errs = append(errs, field.Invalid(label, c.ClusterLabel, message))
		}
	}
	errs = append(errs, c.validateClusters(field.NewPath("clusters"))...)
	errs = append(errs, oneOf(field.NewPath("strategy"), c.Strategy, Spread, Binpack)...)
	if c.HomeScore < 0 || int64(c.HomeScore) > policy.MaxScore {
		errs = append(errs, field.Invalid(field.NewPath("homeScore"), c.HomeScore, "must be between 0 and 100"))
	}
	if c.Settle.Duration < 0 || c.Settle.Duration > maxSettle {
		errs = append(errs, field.Invalid(field.NewPath("settle"), c.Settle.Duration.String(), "must be between 0s and 1h"))
	}
	return append(errs, oneOf(field.NewPath("whenStale"), c.WhenStale, policy.Neutral, policy.Reject)...)
}

func (c *Config) validateClusters(at *field.Path) field.ErrorList {
	switch n := len(c.Clusters); {
	case n == 0:
		return field.ErrorList{field.Required(at, "must name at least one cluster")}
	case n > maxClusters:
		return field.ErrorList{field.TooMany(at, n, maxClusters)}
	}
	var errs field.ErrorList
	for i := range c.Clusters {
		cluster, before, at := &c.Clusters[i], c.Clusters[:i], at.Index(i)
		switch {
		case cluster.Name == "":
			errs = append(errs, field.Required(at.Child("name"), "must be the value of the label"))
		case slices.ContainsFunc(before, func(b Cluster) bool { return b.Name == cluster.Name }):
			errs = append(errs, field.Duplicate(at.Child("name"), cluster.Name))
		}
		for _, message := range validation.IsValidLabelValue(cluster.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), cluster.Name, message))
		}
		switch {
		case cluster.Signal == "":
			errs = append(errs, field.Required(at.Child("signal"), "says what the cluster has left"))
		case slices.ContainsFunc(before, func(b Cluster) bool { return b.Signal == cluster.Signal }):
			errs = append(errs, field.Duplicate(at.Child("signal"), cluster.Signal))
		}
		if w := cluster.weight(); w < 1 || w > maxWeight {
			errs = append(errs, field.Invalid(at.Child("weight"), w, fmt.Sprintf("must be between 1 and %d", maxWeight)))
		}
	}
	return errs
}

func (c *Cluster) weight() int32 {
	if c.Weight == nil {
		return 1
	}
	return *c.Weight
}

func oneOf[T ~string](at *field.Path, value T, known ...T) field.ErrorList {
	if slices.Contains(known, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, known)}
}
