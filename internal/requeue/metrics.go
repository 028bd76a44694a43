package requeue

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The outcomes of requeuing a pod, in metrics.
const (
	outcomeSuccess  = "success"   // kube-scheduler asked again, and a node fits
	outcomeRejected = "rejected"  // kube-scheduler asked again, and no node fits
	outcomeTimeout  = "timeout"   // kube-scheduler did not ask within a second, or asked another replica
	outcomeNotFound = "not_found" // the pod no longer exists
	outcomeError    = "error"     // the API server failed, or denied the write
)

type metrics struct {
	requeues   *prometheus.CounterVec
	patches    prometheus.Counter
	dropped    prometheus.Counter
	evaluating prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer, pending func() float64) *metrics {
	auto := promauto.With(registerer)
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "outboard_requeue_pending_pods", Help: "Pending pods for which Outboard rejected every node of a call.",
	}, pending)
	m := &metrics{
		requeues: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_requeue_pods_total", Help: "Pending pods requeued, by outcome (success, rejected, timeout, not_found, error).",
		}, []string{"outcome"}),
		patches: auto.NewCounter(prometheus.CounterOpts{
			Name: "outboard_requeue_patches_total", Help: "Pod status patches written to requeue pending pods.",
		}),
		dropped: auto.NewCounter(prometheus.CounterOpts{
			Name: "outboard_requeue_dropped_pods_total", Help: "Rejected pods that are not requeued because too many pods are pending.",
		}),
		evaluating: auto.NewCounter(prometheus.CounterOpts{
			Name: "outboard_requeue_evaluation_seconds_total", Help: "Time spent evaluating pending pods again.",
		}),
	}
	for _, outcome := range []string{outcomeSuccess, outcomeRejected, outcomeTimeout, outcomeNotFound, outcomeError} {
		m.requeues.WithLabelValues(outcome)
	}
	return m
}
