package licenses

import (
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
)

const (
	// maxSeats bounds every number of seats, as the tags of Feature do, so that no sum overflows.
	maxSeats = 1_000_000_000
	// defaultCheckoutDelay is long, because a pod that is assumed to have checked out its
	// seats before it does makes room for others too early.
	defaultCheckoutDelay = 5 * time.Minute
)

// Config is the configuration of the policy.
type Config struct {
	// RequestAnnotation is the key of the pod annotation that requests seats:
	// "matlab=1,simulink=2". Default outboard.dev/licenses.
	RequestAnnotation string `json:"requestAnnotation" required:"must not be empty" form:"key"`
	// WhenStale says what happens when the numbers of a server are stale: the last ones count, or
	// else the seats of the feature (Neutral, the default), or no pod gets a floating seat.
	WhenStale policy.UnknownAction `json:"whenStale" values:"Neutral,Reject"`
	// Features are what pods can request. At least one.
	Features []Feature `json:"features" required:"says what pods can request"`
}

// Feature is something that takes a license. It is floating if Seats or Server is
// given, and bound to nodes if NodeLabel or SeatsPerNode is; it may be both.
type Feature struct {
	// Name is the name that pods use: letters, digits and _.-, at most 63, with a letter or digit
	// first. Required, and unique.
	Name string `json:"name" required:"is the name that pods use"`
	// Resource is an extended resource by which pods can also request the feature.
	Resource string `json:"resource"`
	// Seats is the number of floating seats if the server does not report it.
	Seats *int64 `json:"seats" limits:"0..1000000000"`
	// Server reports how many floating seats there are, and how many are used.
	Server *Server `json:"server"`
	// ReservedSeats is how many floating seats pods never get.
	ReservedSeats int64 `json:"reservedSeats" limits:"0..1000000000"`
	// MaxPerNamespace is how many floating seats the pods of one namespace may have. Default: no
	// limit.
	MaxPerNamespace *int64 `json:"maxPerNamespace" limits:"0..1000000000"`
	// NodeLabel is a label of the nodes that have the feature. Default: all nodes.
	NodeLabel *fields.Match `json:"nodeLabel"`
	// SeatsPerNode is how many node-locked seats each of these nodes has.
	SeatsPerNode *int64 `json:"seatsPerNode" limits:"0..1000000000"`
}

// Server is a signal about a feature.
type Server struct {
	// Signal is the name of the signal, with the keys FEATURE/used and, unless the feature has
	// seats, FEATURE/total. Required.
	Signal string `json:"signal" required:"names a signal"`
	// Feature is the server's name of the feature; "" is the name that pods use.
	Feature string `json:"feature"`
	// UsedIncludesPods says that FEATURE/used includes the seats of pods. If false (the default) is
	// wrong, a seat counts twice, but is never allocated twice.
	UsedIncludesPods bool `json:"usedIncludesPods"`
	// CheckoutDelay is how long after its allocation a pod is certainly in the number of the
	// server. Longer is safer. Needs UsedIncludesPods. Default 5m.
	CheckoutDelay *metav1.Duration `json:"checkoutDelay" limits:"1s..24h"`
}

func (s *Server) checkoutDelay() time.Duration {
	if s.CheckoutDelay == nil {
		return defaultCheckoutDelay
	}
	return s.CheckoutDelay.Duration
}

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("Licenses", Defaults, New) }

// Defaults is the configuration of a policy of which only the features are missing.
func Defaults() Config {
	return Config{RequestAnnotation: "outboard.dev/licenses", WhenStale: policy.Neutral}
}

// New returns the policy, or an aggregate of field.Error values.
func New(config Config) (policy.Policy, error) {
	if errs := config.validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return newLicenses(config), nil
}

func (c *Config) validate() field.ErrorList {
	errs := fields.Check(nil, c)
	names, resources := fields.Unique{}, fields.Unique{}
	for i := range c.Features {
		f, at := &c.Features[i], field.NewPath("features").Index(i)
		errs = append(errs, f.validate(at)...)
		errs = append(errs, names.Add(at.Child("name"), f.Name)...)
		errs = append(errs, resources.Add(at.Child("resource"), f.Resource)...)
	}
	return errs
}

var featureName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

func (f *Feature) floating() bool { return f.Seats != nil || f.Server != nil }

func (f *Feature) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if f.Name != "" && !featureName.MatchString(f.Name) {
		errs = append(errs, field.Invalid(at.Child("name"), f.Name, "must be letters, digits, _, . and -, at most 63, and begin with a letter or digit"))
	}
	if f.Resource != "" {
		errs = append(errs, fields.ExtendedResource(at.Child("resource"), f.Resource)...)
	}
	errs = append(errs, f.NodeLabel.CheckLabel(at.Child("nodeLabel"))...)
	if s := f.Server; s != nil && s.CheckoutDelay != nil && !s.UsedIncludesPods {
		errs = append(errs, field.Forbidden(at.Child("server", "checkoutDelay"), "needs usedIncludesPods: true"))
	}
	if !f.floating() && f.NodeLabel == nil && f.SeatsPerNode == nil {
		errs = append(errs, field.Required(at.Child("seats"), "or server, nodeLabel or seatsPerNode must say where there are seats"))
	}
	if !f.floating() && f.ReservedSeats != 0 {
		errs = append(errs, field.Forbidden(at.Child("reservedSeats"), "needs seats or server"))
	}
	if !f.floating() && f.MaxPerNamespace != nil {
		errs = append(errs, field.Forbidden(at.Child("maxPerNamespace"), "needs seats or server"))
	}
	if f.Server == nil && f.Seats != nil && f.ReservedSeats > 0 && f.ReservedSeats >= *f.Seats {
		errs = append(errs, field.Invalid(at.Child("reservedSeats"), f.ReservedSeats, "must be less than seats"))
	}
	return errs
}
