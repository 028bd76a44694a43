package utilization

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
)

// Unit is what the numbers of a signal are.
type Unit string

const (
	// Fraction is of what the node has allocatable: 0.25.
	Fraction Unit = "fraction"
	// Percent is of what the node has allocatable: 25.
	Percent Unit = "percent"
	// Absolute is cores, or bytes: 4, 17179869184.
	Absolute Unit = "absolute"
)

// Model is how use becomes a score.
type Model string

const (
	// LeastUsed prefers nodes that use less.
	LeastUsed Model = "leastUsed"
	// TargetLoadPacking fills nodes up to a target, and avoids those above it.
	TargetLoadPacking Model = "targetLoadPacking"
	// LoadVariationRisk prefers nodes that use less, and more evenly.
	LoadVariationRisk Model = "loadVariationRisk"
	// RiskOfOverload prefers nodes that are less likely to use too much.
	RiskOfOverload Model = "riskOfOverload"
)

var models = []Model{LeastUsed, TargetLoadPacking, LoadVariationRisk, RiskOfOverload}

func (m Model) needsDeviation() bool { return m == LoadVariationRisk || m == RiskOfOverload }

// Config is the configuration of the policy. Percentages are whole numbers.
type Config struct {
	// CPU and Memory say how much nodes use of them. At least one has a signal.
	CPU    Use `json:"cpu"`
	Memory Use `json:"memory"`
	// WhenStale is what it means that a signal is missing or stale: policy.Neutral
	// (the default) or policy.Reject.
	WhenStale policy.WhenStale `json:"whenStale"`
	// Settle is how long after a pod was bound its use is not yet in the signals,
	// 0..24h. Default 1m.
	Settle metav1.Duration `json:"settle"`
	// Prediction is what pods will use.
	Prediction Prediction `json:"prediction"`
	// ForecastWeight is the weight of forecasts beside measurements, 0..100 percent.
	// Default 20.
	ForecastWeight int64 `json:"forecastWeight"`
	// Model is LeastUsed (the default) or one of the others.
	Model Model `json:"model"`
	// Target is up to where TargetLoadPacking fills a node, 1..99 percent. Default 40.
	Target int64 `json:"target"`
	// Margin, 0..10, and Sensitivity, more than 0 and up to 10, say how much the
	// deviation weighs in LoadVariationRisk. Default 1.
	Margin      float64 `json:"margin"`
	Sensitivity float64 `json:"sensitivity"`
	// SafeUse is what RiskOfOverload takes for an overload if it is exceeded, 1..99
	// percent, and MaxRisk how likely that may be, 1..100 percent. Default 90 and 30.
	SafeUse int64 `json:"safeUse"`
	MaxRisk int64 `json:"maxRisk"`
}

// Use says how much nodes use of a resource.
type Use struct {
	// Signal is the name of a signal with what each node uses. "": the resource does
	// not matter, and nothing else is given.
	Signal string `json:"signal"`
	// Unit is that of all signals here. Required.
	Unit Unit `json:"unit"`
	// Deviation is the name of a signal with the standard deviation of what each node
	// uses. For models that need it.
	Deviation string `json:"deviation"`
	// Forecast is the name of a signal with what each node is going to use. Optional.
	Forecast string `json:"forecast"`
	// Max is how much of a node may be used, with the pod, in percent. 0 (the
	// default) does not limit it.
	Max int64 `json:"max"`
}

// Prediction is what a container will use: its limit, else RequestFactor times its
// request, else what is said here.
type Prediction struct {
	// RequestFactor is 0..100. Default 1.5.
	RequestFactor float64 `json:"requestFactor"`
	// CPU and Memory are for containers with neither. Default 1 and 200Mi.
	CPU    *resource.Quantity `json:"cpu"`
	Memory *resource.Quantity `json:"memory"`
}

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("Utilization", Defaults, New) }

// Defaults is the configuration of a policy of which only the signals are missing.
func Defaults() Config {
	return Config{
		WhenStale:      policy.Neutral,
		Settle:         metav1.Duration{Duration: time.Minute},
		Prediction:     Prediction{RequestFactor: 1.5, CPU: resource.NewQuantity(1, resource.DecimalSI), Memory: resource.NewQuantity(200<<20, resource.BinarySI)},
		ForecastWeight: 20,
		Model:          LeastUsed,
		Target:         40,
		Margin:         1,
		Sensitivity:    1,
		SafeUse:        90,
		MaxRisk:        30,
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
	errs := fields.OneOf(field.NewPath("model"), c.Model, models...)
	errs = append(errs, fields.OneOf(field.NewPath("whenStale"), c.WhenStale, policy.Neutral, policy.Reject)...)
	if c.CPU.Signal == "" && c.Memory.Signal == "" {
		errs = append(errs, field.Required(field.NewPath("cpu", "signal"), "or memory.signal: at least one says what nodes use"))
	}
	errs = append(errs, c.CPU.validate(field.NewPath("cpu"), c.Model)...)
	errs = append(errs, c.Memory.validate(field.NewPath("memory"), c.Model)...)
	errs = append(errs, fields.Between(field.NewPath("settle"), c.Settle.Duration, 0, 24*time.Hour)...)
	errs = append(errs, fields.Between(field.NewPath("forecastWeight"), c.ForecastWeight, 0, 100)...)
	errs = append(errs, c.Prediction.validate(field.NewPath("prediction"))...)
	return append(errs, c.validateModel()...)
}

// validateModel is about the fields that belong to one model.
func (c *Config) validateModel() field.ErrorList {
	errs := fields.Between(field.NewPath("target"), c.Target, 1, 99)
	errs = append(errs, fields.Between(field.NewPath("safeUse"), c.SafeUse, 1, 99)...)
	errs = append(errs, fields.Between(field.NewPath("maxRisk"), c.MaxRisk, 1, 100)...)
	errs = append(errs, fields.Between(field.NewPath("margin"), c.Margin, 0, 10)...)
	if !(c.Sensitivity > 0 && c.Sensitivity <= 10) {
		errs = append(errs, field.Invalid(field.NewPath("sensitivity"), c.Sensitivity, "must be more than 0, and at most 10"))
	}
	if !slices.Contains(models, c.Model) {
		return errs
	}
	d := Defaults()
	for _, f := range []struct {
		name  string
		given bool
		model Model
	}{
		{"target", c.Target != d.Target, TargetLoadPacking},
		{"margin", c.Margin != d.Margin, LoadVariationRisk},
		{"sensitivity", c.Sensitivity != d.Sensitivity, LoadVariationRisk},
		{"safeUse", c.SafeUse != d.SafeUse, RiskOfOverload},
		{"maxRisk", c.MaxRisk != d.MaxRisk, RiskOfOverload},
	} {
		if f.given && c.Model != f.model {
			errs = append(errs, field.Forbidden(field.NewPath(f.name), "needs model: "+string(f.model)))
		}
	}
	if c.ForecastWeight != d.ForecastWeight && c.CPU.Forecast == "" && c.Memory.Forecast == "" {
		errs = append(errs, field.Forbidden(field.NewPath("forecastWeight"), "needs cpu.forecast or memory.forecast"))
	}
	return errs
}

func (u *Use) validate(path *field.Path, model Model) field.ErrorList {
	if u.Signal == "" {
		if *u != (Use{}) {
			return field.ErrorList{field.Required(path.Child("signal"), "says what nodes use")}
		}
		return nil
	}
	var errs field.ErrorList
	if u.Unit == "" {
		errs = append(errs, field.Required(path.Child("unit"), "fraction, percent, or absolute (cores or bytes)"))
	} else {
		errs = fields.OneOf(path.Child("unit"), u.Unit, Fraction, Percent, Absolute)
	}
	switch {
	case u.Deviation == "" && model.needsDeviation():
		errs = append(errs, field.Required(path.Child("deviation"), "model: "+string(model)+" needs the standard deviation"))
	case u.Deviation != "" && !model.needsDeviation():
		errs = append(errs, field.Forbidden(path.Child("deviation"), "needs model: loadVariationRisk or riskOfOverload"))
	}
	return append(errs, fields.Between(path.Child("max"), u.Max, 0, 100)...)
}

func (p *Prediction) validate(path *field.Path) field.ErrorList {
	errs := fields.Between(path.Child("requestFactor"), p.RequestFactor, 0, 100)
	errs = append(errs, validateQuantity(path.Child("cpu"), p.CPU)...)
	return append(errs, validateQuantity(path.Child("memory"), p.Memory)...)
}

func validateQuantity(path *field.Path, q *resource.Quantity) field.ErrorList {
	switch {
	case q == nil:
		return field.ErrorList{field.Required(path, "what a container without request and limit will use")}
	case q.Sign() < 0:
		return field.ErrorList{field.Invalid(path, q.String(), "must be 0 or more")}
	}
	return nil
}
