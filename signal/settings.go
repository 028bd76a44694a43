package signal

import (
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy/fields"
)

// Settings are what every signal has beside its source.
type Settings struct {
	// Name is what policies call it: lower-case letters, digits and -, at most 63.
	// Required, and unique.
	Name string `json:"name"`
	// Interval is the time between two readings, 1s..1h. Default 30s.
	Interval time.Duration `json:"interval"`
	// Timeout bounds one reading, 100ms..5m; of some types of sources it must be longer.
	// Default 10s.
	Timeout time.Duration `json:"timeout"`
	// MaxAge is how long a number is believed, interval..24h. Default 5m.
	MaxAge time.Duration `json:"maxAge"`
	// MaxValues is how many numbers a reading may have; one with more is refused as
	// a whole. 1..100000. Default 20000.
	MaxValues int `json:"maxValues"`
	// Hysteresis makes states of the numbers; nil (the default) leaves them as they are.
	Hysteresis *Hysteresis `json:"hysteresis"`
}

// SetDefaults fills in the defaults.
func (s *Settings) SetDefaults() {
	*s = Settings{Interval: 30 * time.Second, Timeout: 10 * time.Second, MaxAge: 5 * time.Minute, MaxValues: 20_000}
}

const (
	// minTimeout is the shortest timeout of a reading.
	minTimeout = 100 * time.Millisecond
	// maxValues bounds what one source can make us keep: some 100 bytes a value.
	maxValues = 100_000
)

var validName = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$`)

// Validate returns what is wrong with the settings of the signal at at. shortest is
// the MinTimeout of its source's type.
func (s *Settings) Validate(at *field.Path, shortest time.Duration) field.ErrorList {
	var errs field.ErrorList
	switch {
	case s.Name == "":
		errs = append(errs, field.Required(at.Child("name"), "must be what policies call the signal"))
	case !validName.MatchString(s.Name):
		errs = append(errs, field.Invalid(at.Child("name"), s.Name, "must be at most 63 lower-case letters, digits and -, with a letter or digit at both ends"))
	}
	times := fields.Between(at.Child("interval"), s.Interval, time.Second, time.Hour)
	times = append(times, fields.Between(at.Child("timeout"), s.Timeout, max(minTimeout, shortest), 5*time.Minute)...)
	if len(times) == 0 {
		times = append(times, fields.Between(at.Child("maxAge"), s.MaxAge, s.Interval, 24*time.Hour)...)
	}
	errs = append(errs, times...)
	errs = append(errs, fields.Between(at.Child("maxValues"), s.MaxValues, 1, maxValues)...)
	return append(errs, s.Hysteresis.validate(at.Child("hysteresis"))...)
}

// Hysteresis makes a state of each number: 1 from when it has gone beyond one threshold
// until it has come back beyond another, and 0 else. So a number that goes up and down
// around a threshold does not change decisions each time. It has exactly one of Above and
// Below. The first number after a start, or of a new key, is judged by that one alone, at
// once.
type Hysteresis struct {
	// Above is what a number must exceed for the state to become 1.
	Above *float64 `json:"above"`
	// ClearBelow is what it must then fall below for the state to become 0, at most
	// Above. Nil (the default) is Above.
	ClearBelow *float64 `json:"clearBelow"`
	// Below and ClearAbove are the same for numbers that are bad when they are low:
	// ClearAbove is at least Below.
	Below      *float64 `json:"below"`
	ClearAbove *float64 `json:"clearAbove"`
	// For is how long all numbers must have been beyond Above or Below, 0s..24h, by the
	// times of the numbers. Default 0s: the first one counts.
	For time.Duration `json:"for"`
	// ClearAfter is the same for ClearBelow or ClearAbove. Default 0s.
	ClearAfter time.Duration `json:"clearAfter"`
}

func (h *Hysteresis) validate(at *field.Path) field.ErrorList {
	if h == nil {
		return nil
	}
	var errs field.ErrorList
	switch {
	case h.Above == nil && h.Below == nil:
		errs = append(errs, field.Required(at, "must have a threshold: above or below"))
	case h.Above != nil && h.Below != nil:
		errs = append(errs, field.Forbidden(at.Child("below"), "cannot be set together with above: set only one of above and below"))
	}
	if h.ClearBelow != nil && (h.Above == nil || *h.ClearBelow > *h.Above) {
		errs = append(errs, field.Invalid(at.Child("clearBelow"), *h.ClearBelow, "needs above, and must not be larger"))
	}
	if h.ClearAbove != nil && (h.Below == nil || *h.ClearAbove < *h.Below) {
		errs = append(errs, field.Invalid(at.Child("clearAbove"), *h.ClearAbove, "needs below, and must not be smaller"))
	}
	errs = append(errs, fields.Between(at.Child("for"), h.For, 0, 24*time.Hour)...)
	return append(errs, fields.Between(at.Child("clearAfter"), h.ClearAfter, 0, 24*time.Hour)...)
}

// sets says whether the number speaks for the state 1.
func (h *Hysteresis) sets(number float64) bool {
	if h.Above != nil {
		return number > *h.Above
	}
	return number < *h.Below
}

// clears says whether the number speaks for the state 0. Between the thresholds a number
// speaks for neither.
func (h *Hysteresis) clears(number float64) bool {
	switch {
	case h.ClearBelow != nil:
		return number < *h.ClearBelow
	case h.ClearAbove != nil:
		return number > *h.ClearAbove
	}
	return !h.sets(number)
}
