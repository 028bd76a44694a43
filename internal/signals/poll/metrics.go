package poll

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	prometheus.Collector // all of them

	readings *prometheus.CounterVec
	drops    *prometheus.CounterVec
	values   *prometheus.GaugeVec
	stale    *prometheus.GaugeVec
}

func newMetrics() *metrics {
	registry := prometheus.NewRegistry()
	auto := promauto.With(registry)
	gauge := func(name, help string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"signal"})
	}
	return &metrics{
		Collector: registry,
		readings: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_signal_readings_total", Help: "Readings of signals, by outcome (success, error).",
		}, []string{"signal", "outcome"}),
		drops: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_signal_dropped_values_total", Help: "Values dropped from readings, by reason (not_a_number, duplicate, unknown_node, long_key).",
		}, []string{"signal", "reason"}),
		values: gauge("outboard_signal_values", "Current and stale values."),
		stale:  gauge("outboard_signal_stale_values", "Stale values."),
	}
}

// begin creates the signal's metrics, so that they start at 0.
func (m *metrics) begin(signal string) {
	m.readings.WithLabelValues(signal, "success")
	m.readings.WithLabelValues(signal, "error")
	for _, why := range []string{notANumber, duplicate, unknownNode, longKey} {
		m.drops.WithLabelValues(signal, why)
	}
	m.values.WithLabelValues(signal)
	m.stale.WithLabelValues(signal)
}

func (m *metrics) reading(signal string, err error) {
	outcome := "success"
	if err != nil {
		outcome = "error"
	}
	m.readings.WithLabelValues(signal, outcome).Inc()
}

func (m *metrics) dropped(signal, why string, n int) {
	m.drops.WithLabelValues(signal, why).Add(float64(n))
}

func (m *metrics) stand(s Status) {
	m.values.WithLabelValues(s.Name).Set(float64(s.Values))
	m.stale.WithLabelValues(s.Name).Set(float64(s.Stale))
}

func (m *metrics) forget(signal string) {
	label := prometheus.Labels{"signal": signal}
	m.readings.DeletePartialMatch(label)
	m.drops.DeletePartialMatch(label)
	for _, g := range []*prometheus.GaugeVec{m.values, m.stale} {
		g.Delete(label)
	}
}
