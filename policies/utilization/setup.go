package utilization

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
)

// Config is the configuration of the policy. Percentages are whole numbers.
type Config struct {
	// CPU says how much of their CPUs nodes use. At least one of CPU and Memory is required.
	CPU *Use `json:"cpu"`
	// Memory says how much of their memory nodes use.
	Memory *Use `json:"memory"`
	// WhenStale says what happens to a node if a signal is missing or stale. Default Neutral.
	WhenStale policy.UnknownAction `json:"whenStale" values:"Neutral,Reject"`
	// MetricDelay is how long the signals take to include what a bound pod uses. Default 1m.
	MetricDelay metav1.Duration `json:"metricDelay" limits:"0s..24h"`
	// Prediction says what pods are predicted to use.
	Prediction Prediction `json:"prediction"`
	// ScoringStrategy is how utilization becomes a score.
	ScoringStrategy ScoringStrategy `json:"scoringStrategy"`
}

// Unit is what the numbers of a signal are.
type Unit string

const (
	// Fraction is of what the node has allocatable: 0.25.
	Fraction Unit = "Fraction"
	// Percent is of what the node has allocatable: 25.
	Percent Unit = "Percent"
	// Absolute is cores, or bytes: 4, 17179869184.
	Absolute Unit = "Absolute"
)

// ScoringStrategyType is how utilization becomes a score.
type ScoringStrategyType string

const (
	// LeastUsed prefers nodes that use less.
	LeastUsed ScoringStrategyType = "LeastUsed"
	// TargetLoadPacking fills nodes up to a target, and avoids those above it.
	TargetLoadPacking ScoringStrategyType = "TargetLoadPacking"
)

// ScoringStrategy is how utilization becomes a score.
type ScoringStrategy struct {
	// Type is LeastUsed (the default) or TargetLoadPacking.
	Type ScoringStrategyType `json:"type" values:"LeastUsed,TargetLoadPacking"`
	// TargetUtilization is the percentage up to which TargetLoadPacking fills a node. Default 40.
	TargetUtilization *int64 `json:"targetUtilization" limits:"1..99"`
}

// Use says how much nodes use of a resource.
type Use struct {
	// Signal is the name of a signal with what each node uses. Required.
	Signal string `json:"signal" required:"says what nodes use"`
	// Unit is the unit of the signal: Fraction or Percent of what is allocatable, or Absolute
	// (cores or bytes). Required.
	Unit Unit `json:"unit" required:"Fraction, Percent, or Absolute (cores or bytes)" values:"Fraction,Percent,Absolute"`
	// Window is the time over which the signal is a mean, such as 5m for a rate over [5m]. Default
	// 0s: the signal is the current use.
	Window metav1.Duration `json:"window" limits:"0s..168h"`
	// Max is the maximum utilization of a node, with the pod, in percent. Default: no limit.
	Max *int64 `json:"max" limits:"1..100"`
}

// Prediction is what a container will use: its limit, else RequestFactor times its
// request, else what is said here.
type Prediction struct {
	// RequestFactor multiplies the request of a container without a limit. Default 1.5.
	RequestFactor float64 `json:"requestFactor" limits:"0..100"`
	// CPU is the predicted use of a container with neither a limit nor a request for CPUs. Default
	// 1.
	CPU *resource.Quantity `json:"cpu"`
	// Memory is the predicted use of a container with neither a limit nor a request for memory.
	// Default 200Mi.
	Memory *resource.Quantity `json:"memory"`
}

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("Utilization", Defaults, New) }

// Defaults is the configuration of a policy of which only the signals are missing.
func Defaults() Config {
	return Config{
		WhenStale:       policy.Neutral,
		MetricDelay:     metav1.Duration{Duration: time.Minute},
		Prediction:      Prediction{RequestFactor: 1.5, CPU: resource.NewQuantity(1, resource.DecimalSI), Memory: resource.NewQuantity(200<<20, resource.BinarySI)},
		ScoringStrategy: ScoringStrategy{Type: LeastUsed},
	}
}

// New returns the policy, or an aggregate of field.Error values.
func New(config Config) (policy.Policy, error) {
	if errs := config.validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return newUtilization(config), nil
}

func (c *Config) validate() field.ErrorList {
	errs := fields.Check(nil, c)
	if c.CPU == nil && c.Memory == nil {
		errs = append(errs, field.Required(field.NewPath("cpu"), "or memory: at least one says what nodes use"))
	}
	if s := &c.ScoringStrategy; s.Type == LeastUsed && s.TargetUtilization != nil {
		errs = append(errs, field.Forbidden(field.NewPath("scoringStrategy", "targetUtilization"), "needs type: "+string(TargetLoadPacking)))
	}
	return append(errs, c.Prediction.validate(field.NewPath("prediction"))...)
}

func (p *Prediction) validate(path *field.Path) field.ErrorList {
	errs := validateQuantity(path.Child("cpu"), p.CPU)
	return append(errs, validateQuantity(path.Child("memory"), p.Memory)...)
}

func validateQuantity(path *field.Path, q *resource.Quantity) field.ErrorList {
	switch {
	case q == nil:
		return field.ErrorList{field.Required(path, "says what a container without request and limit will use")}
	case q.Sign() < 0:
		return field.ErrorList{field.Invalid(path, q.String(), "must be 0 or more")}
	}
	return nil
}
