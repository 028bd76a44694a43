package callmetrics

import "github.com/prometheus/client_golang/prometheus"

// Naming is whether the plugin named nodes in an attempt to schedule a pod, or why not.
type Naming string

// The values of Naming.
const (
	Named      Naming = "named"
	NotScored  Naming = "not_scored" // no policy scores the pod
	Ineligible Naming = "ineligible" // the pod may need another node than the best, or an extender filters
	Disallowed Naming = "disallowed" // the plugins of the profile or their order do not permit it
	Suspended  Naming = "suspended"  // the nodes named for this pod have failed
	NoneUsable Naming = "none_usable"
	Failed     Naming = "error" // a policy failed
)

// Shortlists counts the attempts in which the plugin could name nodes. It is safe for
// concurrent use.
type Shortlists struct{ attempts, rejected *prometheus.CounterVec }

// NewShortlists registers the metrics.
func NewShortlists(r prometheus.Registerer) *Shortlists {
	s := &Shortlists{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_shortlist_attempts_total",
			Help: "Attempts with a shortlist (named, or why not: not_scored, ineligible: the pod needs all " +
				"nodes, disallowed: by the plugins, suspended: after a rejection, none_usable, error).",
		}, []string{"profile", "outcome"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_shortlist_rejected_total",
			Help: "Attempts in which other plugins rejected all named nodes.",
		}, []string{"profile"}),
	}
	r.MustRegister(s.attempts, s.rejected)
	return s
}

// Attempt counts an attempt of the profile.
func (s *Shortlists) Attempt(profile string, outcome Naming) {
	s.attempts.WithLabelValues(profile, string(outcome)).Inc()
}

// Rejected counts an attempt of the profile in which all named nodes were rejected.
func (s *Shortlists) Rejected(profile string) { s.rejected.WithLabelValues(profile).Inc() }
