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
	// Interval is the longest pause between two reads. Default 30s.
	Interval time.Duration `json:"interval" limits:"1s..1h"`
	// Timeout bounds one read. Default 10s.
	Timeout time.Duration `json:"timeout" limits:"100ms..5m"`
	// MaxAge is the age at which a number becomes stale, at least interval + 2 × timeout. Default
	// 5m.
	MaxAge time.Duration `json:"maxAge" limits:"1s..24h"`
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
	return errs
}
