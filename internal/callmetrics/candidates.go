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
			Help: "Attempts to schedule a pod that concerns a policy, with candidates set, by outcome (named, or why kube-scheduler evaluated the nodes as without candidates: " +
				"not_scored, ineligible: the pod needs all nodes, as one of a DaemonSet does, disallowed: by the plugins of the profile or their order, suspended: after candidates were rejected, none_usable, error).",
		}, []string{"profile", "outcome"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_candidates_rejected_total",
			Help: "Attempts in which other plugins rejected all candidates, so that the pod was retried with all nodes.",
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
