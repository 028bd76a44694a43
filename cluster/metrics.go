package cluster

import (
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
	return &metrics{
		registry: registry,
		watchErrors: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_cluster_watch_errors_total",
			Help: "Failed list and watch requests, by resource.",
		}, []string{"resource"}),
		binds: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_cluster_binds_total",
			Help: "Bind calls, by outcome.",
		}, []string{"outcome"}),
		bindSeconds: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "outboard_cluster_bind_duration_seconds",
			Help:    "Duration of Bind calls, by outcome.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14), // 1 ms to 8 s
		}, []string{"outcome"}),
	}
}

// read adds the metrics that are read from the Cluster when they are collected.
func (m *metrics) read(c *Cluster) {
	promauto.With(m.registry).NewCounterFunc(prometheus.CounterOpts{Name: "outboard_cluster_publications_total", Help: "Views published."},
		func() float64 { return float64(c.View().Generation()) })
	m.gauge("outboard_cluster_view_generation", "Generation of the present view.", nil,
		func() float64 { return float64(c.View().Generation()) })
	m.gauge("outboard_cluster_view_age_seconds", "Time since the present view was published.", nil,
		func() float64 { return time.Since(c.state.published.Load().at).Seconds() })
	m.gauge("outboard_cluster_nodes", "Nodes in the present view.", nil,
		func() float64 { return float64(c.View().Len()) })
	m.gauge("outboard_cluster_pods", "Pods known that have not ended, on a node or waiting.", nil,
		func() float64 { return float64(c.state.count()) })
	for _, f := range *c.feeds.Load() {
		m.readFeed(f)
	}
}

// readFeed adds the metrics of one feed.
func (m *metrics) readFeed(f *feed) {
	labels := prometheus.Labels{"resource": f.resource}
	m.watchErrors.With(labels)
	m.gauge("outboard_cluster_synced", "1 if the resource was read completely.", labels, func() float64 {
		if f.read.Load() {
			return 1
		}
		return 0
	})
	m.gauge("outboard_cluster_unreadable", "1 while the resource cannot be read: the last request to list or watch it failed.", labels, func() float64 {
		if f.lastError.Load() != nil {
			return 1
		}
		return 0
	})
	m.gauge("outboard_cluster_last_event_age_seconds", "Time since the API server last said something about the resource. It sends a sign of life about once a minute.", labels,
		func() float64 { return f.age().Seconds() })
}

func (m *metrics) gauge(name, help string, labels prometheus.Labels, value func() float64) {
	promauto.With(m.registry).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value)
}
