// Package callmetrics counts and measures the calls of kube-scheduler, or of its plugin, by profile
// and verb.
package callmetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outboard.dev/outboard/internal/decision"
)

// Metrics counts and measures calls. All Handlers of a process share one Metrics. It is safe for
// concurrent use.
type Metrics struct {
	duration       *prometheus.HistogramVec
	rejections     *prometheus.CounterVec
	ignored        *prometheus.CounterVec
	policyDuration *prometheus.HistogramVec
}

// New registers the metrics.
func New(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "outboard_request_duration_seconds",
			Help:    "Duration of calls (success, error).",
			Buckets: prometheus.ExponentialBuckets(0.000025, 2, 18),
		}, []string{"profile", "verb", "outcome"}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_rejected_nodes_total",
			Help: "Nodes rejected.",
		}, []string{"profile", "policy", "reason"}),
		ignored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_policy_ignored_errors_total",
			Help: "Calls in which a policy failed and was ignored.",
		}, []string{"profile", "policy"}),
		policyDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "outboard_policy_duration_seconds",
			Help:    "Duration of policies in a call.",
			Buckets: prometheus.ExponentialBuckets(0.000001, 4, 12),
		}, []string{"profile", "policy", "verb"}),
	}
	r.MustRegister(m.duration, m.rejections, m.ignored, m.policyDuration)
	return m
}

// Observe counts a call of a verb of a profile. The record may be nil.
func (m *Metrics) Observe(profile string, of decision.Verb, duration time.Duration, r *decision.Record, err error) {
	verb := string(of)
	outcome := "success"
	if err != nil {
		outcome = "error"
	}
	m.duration.WithLabelValues(profile, verb, outcome).Observe(duration.Seconds())
	if r == nil {
		return
	}
	for i := range r.Rejections {
		m.rejections.WithLabelValues(profile, r.Rejections[i].Policy, r.Rejections[i].Code).Add(float64(r.Rejections[i].Nodes))
	}
	for i := range r.Policies {
		p := &r.Policies[i]
		if p.IgnoredError != "" {
			m.ignored.WithLabelValues(profile, p.Name).Inc()
		}
		if p.Duration > 0 {
			m.policyDuration.WithLabelValues(profile, p.Name, verb).Observe(p.Duration.Seconds())
		}
	}
}
