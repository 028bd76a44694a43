package ledger

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Why claims are dropped, in metrics.
const (
	finished  = "finished"  // the pod is gone, has ended, or is bound elsewhere
	reclaimed = "reclaimed" // the pod stayed unbound
)

type metrics struct {
	prometheus.Collector // all of them

	claims        *prometheus.CounterVec
	writes        *prometheus.HistogramVec
	conflicts     prometheus.Counter
	released      *prometheus.CounterVec
	overcommitted prometheus.Gauge
	missing       prometheus.Gauge
}

func newMetrics() *metrics {
	registry := prometheus.NewRegistry()
	auto := promauto.With(registry)
	return &metrics{
		Collector: registry,
		claims: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_ledger_claims_total", Help: "Claims asked for, by outcome (claimed, refused, error).",
		}, []string{"outcome"}),
		writes: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "outboard_ledger_write_duration_seconds", Help: "Duration of writes of ledgers, by outcome (ok, conflict, error).",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14), // 1 ms to 8 s
		}, []string{"outcome"}),
		conflicts: auto.NewCounter(prometheus.CounterOpts{
			Name: "outboard_ledger_conflicts_total", Help: "Writes made again because somebody else was faster.",
		}),
		released: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_ledger_dropped_claims_total", Help: "Claims taken back in the background, by cause (finished, reclaimed).",
		}, []string{"cause"}),
		overcommitted: auto.NewGauge(prometheus.GaugeOpts{
			Name: "outboard_ledger_overbooked_units", Help: "Units with more claimed than they have, because hardware shrank or is gone.",
		}),
		missing: auto.NewGauge(prometheus.GaugeOpts{
			Name: "outboard_ledger_refused_reclaims", Help: "Unneeded claims and ledgers that cannot be removed because a permission is missing.",
		}),
	}
}

// claim counts a claim that was refused by the policy, failed, or was made.
func (m *metrics) claim(refused, failed error) {
	outcome := "claimed"
	switch {
	case failed != nil:
		outcome = "error"
	case refused != nil:
		outcome = "refused"
	}
	m.claims.WithLabelValues(outcome).Inc()
}

func (m *metrics) write(took time.Duration, err error) {
	outcome := "ok"
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		outcome = "conflict"
	case err != nil:
		outcome = "error"
	}
	m.writes.WithLabelValues(outcome).Observe(took.Seconds())
}
