package remoteclusters

import (
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
)

// Config is the configuration of the policy.
type Config struct {
	// ClusterLabel is the key of the node label with the name of the cluster that the node
	// represents. Nodes without it are local. Required.
	ClusterLabel string `json:"clusterLabel" required:"must not be empty" form:"key"`
	// Clusters are the remote clusters, at least one.
	Clusters []Cluster `json:"clusters" required:"must name at least one cluster"`
	// MetricDelay is how long a cluster takes to count a pod that is bound to its node. Default
	// 10s.
	MetricDelay metav1.Duration `json:"metricDelay" limits:"0s..1h"`
	// WhenStale says what happens to a node whose cluster has no current signal, or is not
	// configured. Default Reject.
	WhenStale policy.UnknownAction `json:"whenStale" values:"Neutral,Reject"`
}

const (
	maxDelay    = time.Hour
	maxClusters = 1000
)

// Cluster is one that nodes stand for.
type Cluster struct {
	// Name is a value of the label. Required, and unique.
	Name string `json:"name" required:"must be the value of the label"`
	// Signal is the name of the signal with the free resources of the cluster. Required, and
	// unique.
	Signal string `json:"signal" required:"says what the cluster has left"`
	// Weight is how much the cluster is preferred to others, 0..100. Default 1.
	Weight *int32 `json:"weight" limits:"0..100"`
}

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("RemoteClusters", Defaults, New) }

// Defaults is the configuration of a policy of which the label and the clusters are missing.
func Defaults() Config {
	return Config{MetricDelay: metav1.Duration{Duration: 10 * time.Second}, WhenStale: policy.Reject}
}

// New returns the policy, or an aggregate of field.Error values.
func New(config Config) (policy.Policy, error) {
	if errs := config.validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return newRemoteClusters(config), nil
}

func (c *Config) validate() field.ErrorList {
	errs := fields.Check(nil, c)
	return append(errs, c.validateClusters(field.NewPath("clusters"))...)
}

func (c *Config) validateClusters(at *field.Path) field.ErrorList {
	if n := len(c.Clusters); n > maxClusters {
		return field.ErrorList{field.TooMany(at, n, maxClusters)}
	}
	var errs field.ErrorList
	names, signals := fields.Unique{}, fields.Unique{}
	for i := range c.Clusters {
		cluster, at := &c.Clusters[i], at.Index(i)
		errs = append(errs, fields.Valid(at.Child("name"), cluster.Name, content.IsLabelValue)...)
		errs = append(errs, names.Add(at.Child("name"), cluster.Name)...)
		errs = append(errs, signals.Add(at.Child("signal"), cluster.Signal)...)
	}
	return errs
}

func (c *Cluster) weight() int32 {
	if c.Weight == nil {
		return 1
	}
	return *c.Weight
}
