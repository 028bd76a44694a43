package utilization

import (
	"time"

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

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("Utilization", Defaults, New) }

// Defaults is the configuration of a policy of which only the signals are missing.
func Defaults() Config {
	return Config{WhenStale: policy.Neutral, MetricDelay: metav1.Duration{Duration: time.Minute}}
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
	return errs
}
