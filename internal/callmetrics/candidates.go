package callmetrics

import "github.com/prometheus/client_golang/prometheus"

// Naming is whether the plugin named candidates in an attempt to schedule a pod, or why not.
type Naming string

// The values of Naming.
const (
	Named      Naming = "named"
	NotScored  Naming = "not_scored" // no policy scores the pod
	Ineligible Naming = "ineligible" // the pod may need another node than the best, or an extender filters
	Disallowed Naming = "disallowed" // the plugins of the profile or their order do not permit it
	Suspended  Naming = "suspended"  // the candidates of this pod have failed
	NoneUsable Naming = "none_usable"
	Failed     Naming = "error" // a policy failed
)

// Candidates counts the attempts in which the plugin could name candidates. It is safe for
// concurrent use.
type Candidates struct{ attempts, rejected *prometheus.CounterVec }

// NewCandidates registers the metrics.
func NewCandidates(r prometheus.Registerer) *Candidates {
	c := &Candidates{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_candidates_attempts_total",
			Help: "Attempts with candidates set (named, or why not: not_scored, ineligible: the pod needs all " +
				"nodes, disallowed: by the plugins, suspended: after a rejection, none_usable, error).",
		}, []string{"profile", "outcome"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_candidates_rejected_total",
			Help: "Attempts in which other plugins rejected all candidates.",
		}, []string{"profile"}),
	}
	r.MustRegister(c.attempts, c.rejected)
	return c
}

// Attempt counts an attempt of the profile.
func (c *Candidates) Attempt(profile string, outcome Naming) {
	c.attempts.WithLabelValues(profile, string(outcome)).Inc()
}

// Rejected counts an attempt of the profile in which all candidates were rejected.
func (c *Candidates) Rejected(profile string) { c.rejected.WithLabelValues(profile).Inc() }
