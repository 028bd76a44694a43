package cluster

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	registry    *prometheus.Registry // all of them
	watchErrors *prometheus.CounterVec
	binds       *prometheus.CounterVec
	bindSeconds *prometheus.HistogramVec
}

func newMetrics() *metrics {
	registry := prometheus.NewRegistry()
	auto := promauto.With(registry)
	m := &metrics{
		registry: registry,
		watchErrors: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_cluster_watch_errors_total",
			Help: "Failed list and watch requests.",
		}, []string{"resource"}),
		binds: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_cluster_binds_total",
			Help: "Bind calls, by outcome (" + strings.Join(outcomes(), ", ") + ").",
		}, []string{"outcome"}),
		bindSeconds: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "outboard_cluster_bind_duration_seconds",
			Help:    "Duration of bind calls.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14), // 1 ms to 8 s
		}, []string{"outcome"}),
	}
	for _, outcome := range outcomes() {
		m.binds.WithLabelValues(outcome) // from 0 on: rate() does not count the increase that creates a series
	}
	return m
}

// read adds the metrics that are computed from the Cluster when they are collected.
func (m *metrics) read(c *Cluster) {
	m.gauge("outboard_cluster_view_generation", "Generation of the current view.",
		func() float64 { return float64(c.View().Generation()) })
	m.gauge("outboard_cluster_view_age_seconds", "Time since the current view was published.",
		func() float64 { return time.Since(c.published.Load().at).Seconds() })
	m.gauge("outboard_cluster_nodes", "Nodes in the current view.",
		func() float64 { return float64(c.View().Len()) })
	m.gauge("outboard_cluster_pods", "Pods that have not ended, bound or pending.",
		func() float64 { return float64(c.CountPods()) })
	m.registry.MustRegister(feedMetrics{c})
}

// feedMetrics are the metrics of the resources that a Cluster watches; resources may be added
// later.
type feedMetrics struct{ cluster *Cluster }

func feedDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"resource"}, nil)
}

var (
	syncedDesc     = feedDesc("outboard_cluster_synced", "1 after the resource was listed completely once.")
	unreadableDesc = feedDesc("outboard_cluster_unreadable", "1 while the last request to list or watch the resource failed.")
	lastEventDesc  = feedDesc("outboard_cluster_last_event_age_seconds", "Time since the last watch event of the resource; after more than two minutes, the API server does not respond.")
)

func (feedMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{syncedDesc, unreadableDesc, lastEventDesc} {
		to <- desc
	}
}

func (m feedMetrics) Collect(to chan<- prometheus.Metric) {
	for _, f := range *m.cluster.feeds.Load() {
		gauge := func(desc *prometheus.Desc, value float64) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, f.resource)
		}
		gauge(syncedDesc, one(f.read.Load()))
		gauge(unreadableDesc, one(f.lastError.Load() != nil))
		if !f.informed {
			gauge(lastEventDesc, f.age().Seconds())
		}
	}
}

// one returns 1 if the condition holds, and 0 otherwise.
func one(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}

func (m *metrics) gauge(name, help string, value func() float64) {
	promauto.With(m.registry).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}
