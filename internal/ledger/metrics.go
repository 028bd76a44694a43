package ledger

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Why allocations are released in the background, in metrics.
const (
	finished  = "finished"  // the pod is deleted, has ended, or is bound to another node
	reclaimed = "reclaimed" // the pod was not bound in time
)

type metrics struct {
	allocations   *prometheus.CounterVec
	writes        *prometheus.HistogramVec
	released      *prometheus.CounterVec
	overcommitted prometheus.Gauge
	missing       prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	auto := promauto.With(registerer)
	m := &metrics{
		allocations: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_ledger_allocations_total", Help: "Attempts to allocate resources, by outcome (success, rejected, error).",
		}, []string{"outcome"}),
		writes: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "outboard_ledger_write_duration_seconds", Help: "Duration of ledger writes, by outcome (success, conflict: another writer was faster, error).",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14), // 1 ms to 8 s
		}, []string{"outcome"}),
		released: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_ledger_released_allocations_total", Help: "Allocations released in the background, by reason (finished, reclaimed).",
		}, []string{"reason"}),
		overcommitted: auto.NewGauge(prometheus.GaugeOpts{
			Name: "outboard_ledger_overcommitted_units", Help: "Units whose allocations exceed their capacity.",
		}),
		missing: auto.NewGauge(prometheus.GaugeOpts{
			Name: "outboard_ledger_forbidden_deletions", Help: "Unneeded allocations and ledgers that a missing permission keeps.",
		}),
	}
	for _, outcome := range []string{"success", "conflict", "error"} {
		m.writes.WithLabelValues(outcome) // from 0 on: increase() does not count the increase that creates a series
	}
	return m
}

// allocation counts an allocation that the policy rejected, that failed, or that was made.
func (m *metrics) allocation(refused, failed error) {
	outcome := "success"
	switch {
	case failed != nil:
		outcome = "error"
	case refused != nil:
		outcome = "rejected"
	}
	m.allocations.WithLabelValues(outcome).Inc()
}

// write counts a write; outdated: another writer was faster.
func (m *metrics) write(took time.Duration, outdated bool, err error) {
	outcome := "success"
	switch {
	case outdated:
		outcome = "conflict"
	case err != nil:
		outcome = "error"
	}
	m.writes.WithLabelValues(outcome).Observe(took.Seconds())
}
