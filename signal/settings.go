package signal

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy/fields"
)

// Settings are the fields of every signal besides its source.
type Settings struct {
	// Name is the name that policies use: lower-case letters, digits and -, at most 63. Required,
	// and unique.
	Name string `json:"name" required:"must be the name that policies use" form:"name"`
	// Interval is the longest pause between two reads. The pauses vary by a fifth, so that replicas
	// do not read at the same time. Default 30s.
	Interval time.Duration `json:"interval" limits:"1s..1h"`
	// Timeout bounds one read; some types of sources need more than others. Default 10s.
	Timeout time.Duration `json:"timeout" limits:"100ms..5m"`
	// MaxAge is the age at which a number becomes stale, at least interval + 2 × timeout: until
	// then, the next reading has ended. Default 5m.
	MaxAge time.Duration `json:"maxAge" limits:"1s..24h"`
	// Hysteresis converts the numbers to states; without it (the default), the numbers stay as they
	// are.
	Hysteresis *Hysteresis `json:"hysteresis"`
}

// SetDefaults fills in the defaults.
func (s *Settings) SetDefaults() {
	*s = Settings{Interval: 30 * time.Second, Timeout: 10 * time.Second, MaxAge: 5 * time.Minute}
}

// Validate returns the errors of the settings of the signal at the path at. shortest is the
// MinTimeout of its source's type.
func (s *Settings) Validate(at *field.Path, shortest time.Duration) field.ErrorList {
	errs := fields.Check(at, s)
	if s.Timeout < shortest {
		errs = append(errs, field.Invalid(at.Child("timeout"), s.Timeout.String(), "must be at least "+shortest.String()+" for this source"))
	}
	// A number is as old as the start of its reading. The next reading ends after both have taken
	// up to a timeout, with a pause in between.
	if least := s.Interval + 2*s.Timeout; len(errs) == 0 && s.MaxAge < least {
		errs = append(errs, field.Invalid(at.Child("maxAge"), s.MaxAge.String(), fmt.Sprintf(
			"must be at least %s, which is interval (%s) + 2 × timeout (%s): numbers would become stale before the next reading ends", least, s.Interval, s.Timeout)))
	}
	return append(errs, s.Hysteresis.validate(at.Child("hysteresis"))...)
}

// Hysteresis converts each number to a state: 1 from when the number is beyond one threshold until
// it is back beyond another one, and 0 otherwise. So a number that varies around a threshold does
// not change decisions each time. Exactly one of Above and Below must be set. It alone determines
// the state for the first number after a start, or of a new key, immediately.
type Hysteresis struct {
	// Above is the threshold above which the state becomes 1.
	Above *float64 `json:"above" oneOf:"threshold"`
	// ClearBelow is the threshold below which the state becomes 0 again, at most Above. Without
	// it (the default), it is Above.
	ClearBelow *float64 `json:"clearBelow"`
	// Below is the threshold below which the state becomes 1, for numbers that are bad when they
	// are low.
	Below *float64 `json:"below" oneOf:"threshold"`
	// ClearAbove is the threshold above which the state becomes 0 again, at least Below. Without it
	// (the default), it is Below.
	ClearAbove *float64 `json:"clearAbove"`
	// For is how long all numbers must be beyond Above or Below, by the times of the numbers.
	// Default 0s: the first number is enough.
	For time.Duration `json:"for" limits:"0s..24h"`
	// ClearAfter is how long all numbers must be beyond ClearBelow or ClearAbove. Default 0s: the
	// first number is enough.
	ClearAfter time.Duration `json:"clearAfter" limits:"0s..24h"`
}

func (h *Hysteresis) validate(at *field.Path) field.ErrorList {
	if h == nil {
		return nil
	}
	var errs field.ErrorList
	if h.ClearBelow != nil && (h.Above == nil || *h.ClearBelow > *h.Above) {
		errs = append(errs, field.Invalid(at.Child("clearBelow"), *h.ClearBelow, "needs above, and must not be larger"))
	}
	if h.ClearAbove != nil && (h.Below == nil || *h.ClearAbove < *h.Below) {
		errs = append(errs, field.Invalid(at.Child("clearAbove"), *h.ClearAbove, "needs below, and must not be smaller"))
	}
	return errs
}
