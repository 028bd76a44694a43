package signal

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy/fields"
)

// Settings are the fields of every signal besides its source.
type Settings struct {
	// Name is the name that policies use: lower-case letters, digits and -, at most 63. Required,
	// and unique.
	Name string `json:"name" required:"must be the name that policies use" form:"name"`
	// Interval is the time between two reads, 1s..1h. Default 30s.
	Interval time.Duration `json:"interval"`
	// Timeout bounds one read, 100ms..5m; some types of sources need more than others. Default 10s.
	Timeout time.Duration `json:"timeout"`
	// MaxAge is the age at which a number becomes stale, interval..24h. Default 5m.
	MaxAge time.Duration `json:"maxAge"`
	// Hysteresis converts the numbers to states; without it (the default), the numbers stay as they are.
	Hysteresis *Hysteresis `json:"hysteresis"`
}

// SetDefaults fills in the defaults.
func (s *Settings) SetDefaults() {
	*s = Settings{Interval: 30 * time.Second, Timeout: 10 * time.Second, MaxAge: 5 * time.Minute}
}

// minTimeout is the shortest timeout of a read.
const minTimeout = 100 * time.Millisecond

// Validate returns the errors of the settings of the signal at the path at. shortest is the
// MinTimeout of its source's type.
func (s *Settings) Validate(at *field.Path, shortest time.Duration) field.ErrorList {
	errs := fields.Check(at, s)
	times := fields.Between(at.Child("interval"), s.Interval, time.Second, time.Hour)
	times = append(times, fields.Between(at.Child("timeout"), s.Timeout, max(minTimeout, shortest), 5*time.Minute)...)
	if len(times) == 0 {
		times = append(times, fields.Between(at.Child("maxAge"), s.MaxAge, s.Interval, 24*time.Hour)...)
	}
	errs = append(errs, times...)
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
	// Below and ClearAbove are the thresholds for numbers that are bad when they are low:
	// ClearAbove is at least Below.
	Below      *float64 `json:"below" oneOf:"threshold"`
	ClearAbove *float64 `json:"clearAbove"`
	// For is how long all numbers must be beyond Above or Below, 0s..24h, by the times of the
	// numbers. Default 0s: the first number is enough.
	For time.Duration `json:"for"`
	// ClearAfter is the same for ClearBelow or ClearAbove. Default 0s.
	ClearAfter time.Duration `json:"clearAfter"`
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
	errs = append(errs, fields.Between(at.Child("for"), h.For, 0, 24*time.Hour)...)
	return append(errs, fields.Between(at.Child("clearAfter"), h.ClearAfter, 0, 24*time.Hour)...)
}

// sets reports whether the number is beyond the threshold of state 1.
func (h *Hysteresis) sets(number float64) bool {
	if h.Above != nil {
		return number > *h.Above
	}
	return number < *h.Below
}

// clears reports whether the number is beyond the threshold of state 0. A number between the
// thresholds is beyond neither.
func (h *Hysteresis) clears(number float64) bool {
	switch {
	case h.ClearBelow != nil:
		return number < *h.ClearBelow
	case h.ClearAbove != nil:
		return number > *h.ClearAbove
	}
	return !h.sets(number)
}
