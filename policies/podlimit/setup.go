package podlimit

import (
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
)

// allNamespaces, alone in Config.Namespaces, stands for every namespace.
const allNamespaces = "*"

// Config is the configuration of the policy.
type Config struct {
	// Max is how many matching pods one node may run.
	Max int32 `json:"max" limits:"1.."`
	// MaxFrom is where a node declares its own Max, from 0.
	MaxFrom *fields.From `json:"maxFrom"`
	// MaxFromPod is where a pod declares how many pods of its kind, with it, a node may run, from
	// 1. The lower limit applies.
	MaxFromPod *fields.From `json:"maxFromPod"`
	// Selector selects by labels the pods that are limited and counted. Required; {} selects
	// every pod.
	Selector *metav1.LabelSelector `json:"selector" required:"says which pods are limited; {} selects every pod"`
	// Namespaces are those that share one limit; "*" is all, and others are not limited. Default:
	// each namespace has its own.
	Namespaces []string `json:"namespaces" items:"must not be empty"`
	// Each gives the pods with each value of a label their own limit. Pods without the label are
	// not limited.
	Each *Each `json:"each"`
}

// Each is what the pods of one limit have in common.
type Each struct {
	// Label is the key of a label of pods.
	Label string `json:"label" required:"names the label" form:"key"`
}

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("PodLimit", Defaults, New) }

// Defaults is the configuration of a policy of which everything is missing.
func Defaults() Config { return Config{} }

// New returns the policy, or an aggregate of field.Error values.
func New(config Config) (policy.Policy, error) {
	errs := config.validate()
	selector, err := metav1.LabelSelectorAsSelector(config.Selector)
	if err != nil && len(errs) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("selector"), config.Selector, err.Error()))
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return newPodLimit(config, selector), nil
}

func (c *Config) validate() field.ErrorList {
	errs := fields.Check(nil, c)
	errs = append(errs, metavalidation.ValidateLabelSelector(c.Selector, metavalidation.LabelSelectorValidationOptions{}, field.NewPath("selector"))...)
	return append(errs, c.validateNamespaces(field.NewPath("namespaces"))...)
}

func (c *Config) validateNamespaces(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := fields.Unique{}
	for i, name := range c.Namespaces {
		errs = append(errs, seen.Add(path.Index(i), name)...)
		switch {
		case name != allNamespaces && name != "":
			errs = append(errs, fields.Valid(path.Index(i), name, content.IsDNS1123Label)...)
		case name == allNamespaces && len(c.Namespaces) > 1:
			errs = append(errs, field.Invalid(path.Index(i), name, "stands for all namespaces and must be alone"))
		}
	}
	return errs
}
