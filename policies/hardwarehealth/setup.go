package hardwarehealth

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
)

// maxRules bounds Config.Rules.
const maxRules = 100

// Config is the configuration of the policy.
type Config struct {
	// Rules say which hardware is degraded, 1..100. All rules that match a node count.
	Rules []Rule `json:"rules" required:"says what degraded hardware is"`
	// TolerationAnnotation is the key of the pod annotation with the names of rules that the pod
	// tolerates, separated by commas; * is all. Default: none.
	TolerationAnnotation string `json:"tolerationAnnotation" form:"key"`
	// WhenStale says what happens to a node without a current signal of a rule. Default Neutral.
	WhenStale policy.UnknownAction `json:"whenStale" values:"Neutral,Reject"`
}

// Rule is one sign of degraded hardware, and what follows from it. It has exactly one of
// NodeCondition, NodeLabel and Signal, and exactly one of Reject and Penalty.
type Rule struct {
	// Name is the name of the rule in explanations and in the pod annotation: lower-case letters,
	// digits and -. Required, and unique.
	Name string `json:"name" required:"must name the rule" form:"name"`
	// NodeCondition is a condition of the node whose status is True.
	NodeCondition *Condition `json:"nodeCondition" oneOf:"sign"`
	// NodeLabel is a label that indicates degraded hardware.
	NodeLabel *fields.Match `json:"nodeLabel" oneOf:"sign"`
	// Signal is a number about the node.
	Signal *Signal `json:"signal" oneOf:"sign"`
	// Reject rejects the node.
	Reject bool `json:"reject" oneOf:"effect"`
	// Penalty is subtracted from the score of the node, in points of 100.
	Penalty *int64 `json:"penalty" limits:"1..100" oneOf:"effect"`
	// Resources are those of which a pod requests at least one if the rule applies to it. Default:
	// the rule applies to all pods.
	Resources []corev1.ResourceName `json:"resources" items:"must not be empty" form:"key"`
}

// Condition is a condition in a node's status.
type Condition struct {
	// Type is the condition's type, such as KernelDeadlock. Required.
	Type string `json:"type" required:"must not be empty" form:"key"`
}

// Signal is a number about a node, with at most one threshold. Without one, any number
// but 0 indicates degraded hardware.
type Signal struct {
	// Name is the name of the signal. Required.
	Name string `json:"name" required:"must be the name of a signal"`
	// Above indicates degraded hardware if the number is larger.
	Above *float64 `json:"above" oneOf:"threshold?"`
	// Below indicates degraded hardware if the number is smaller.
	Below *float64 `json:"below" oneOf:"threshold?"`
}

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("HardwareHealth", Defaults, New) }

// Defaults is the configuration of a policy of which only the rules are missing.
func Defaults() Config {
	return Config{WhenStale: policy.Neutral}
}

// New returns the policy, or an aggregate of field.Error values.
func New(config Config) (policy.Policy, error) {
	if errs := config.validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return newHardwareHealth(config), nil
}

func (c *Config) validate() field.ErrorList {
	errs := fields.Check(nil, c)
	at := field.NewPath("rules")
	if n := len(c.Rules); n > maxRules {
		return append(errs, field.TooMany(at, n, maxRules))
	}
	names := fields.Unique{}
	for i := range c.Rules {
		errs = append(errs, c.Rules[i].validate(at.Index(i))...)
		errs = append(errs, names.Add(at.Index(i).Child("name"), c.Rules[i].Name)...)
	}
	return errs
}

func (r *Rule) validate(at *field.Path) field.ErrorList {
	errs := r.Signal.validate(at.Child("signal"))
	return append(errs, r.NodeLabel.CheckLabel(at.Child("nodeLabel"))...)
}

func (s *Signal) validate(at *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	for _, threshold := range []struct {
		name  string
		value *float64
	}{{"above", s.Above}, {"below", s.Below}} {
		if v := threshold.value; v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
			errs = append(errs, field.Invalid(at.Child(threshold.name), *v, "must be a number"))
		}
	}
	return errs
}
