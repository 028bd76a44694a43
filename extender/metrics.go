package extender

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outboard.dev/outboard/decision"
)

// Metrics counts and times calls. One Metrics serves all Handlers of a process.
type Metrics struct {
	duration   *prometheus.HistogramVec
	asked      *prometheus.HistogramVec
	rejections *prometheus.CounterVec
	skipped    *prometheus.CounterVec
	policies   *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "outboard_request_duration_seconds",
			Help:    "Time from a call's arrival to its answer, by profile, verb and outcome (ok, error).",
			Buckets: prometheus.ExponentialBuckets(0.000025, 2, 18),
		}, []string{"profile", "verb", "outcome"}),
		asked: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "outboard_request_nodes",
			Help:    "Nodes asked about in a call, by profile and verb.",
			Buckets: []float64{1, 10, 50, 100, 250, 500, 1000, 2500, 5000, 10000},
		}, []string{"profile", "verb"}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_rejected_nodes_total",
			Help: "Nodes rejected, by profile, policy and reason.",
		}, []string{"profile", "policy", "reason"}),
		skipped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_policy_skipped_total",
			Help: "Requests in which a policy was left out because it failed (failurePolicy: Ignore), by profile and policy.",
		}, []string{"profile", "policy"}),
		policies: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "outboard_policy_duration_seconds",
			Help:    "Time a policy took in a call, by profile, policy and verb.",
			Buckets: prometheus.ExponentialBuckets(0.000001, 4, 12),
		}, []string{"profile", "policy", "verb"}),
	}
	r.MustRegister(m.duration, m.asked, m.rejections, m.skipped, m.policies)
	return m
}

func (m *Metrics) observe(profile string, verb decision.Verb, duration time.Duration, r *decision.Record, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	m.duration.WithLabelValues(profile, string(verb), outcome).Observe(duration.Seconds())
	if r == nil {
		return
	}
	if verb == decision.Filter || verb == decision.Prioritize {
		m.asked.WithLabelValues(profile, string(verb)).Observe(float64(r.Asked))
	}
	for i := range r.Rejections {
		m.rejections.WithLabelValues(profile, r.Rejections[i].Policy, r.Rejections[i].Code).Add(float64(r.Rejections[i].Nodes))
	}
	for _, p := range r.Policies {
		if p.Skipped != "" {
			m.skipped.WithLabelValues(profile, p.Name).Inc()
		}
		if p.Duration > 0 {
			m.policies.WithLabelValues(profile, p.Name, string(verb)).Observe(p.Duration.Seconds())
		}
	}
}
