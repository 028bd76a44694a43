package wakeup

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// What becomes of a pod that is to be woken, in metrics.
const (
	outcomeFits       = "fits"       // kube-scheduler asked again, and a node fits
	outcomeRejected   = "rejected"   // kube-scheduler asked again in vain
	outcomeUnanswered = "unanswered" // kube-scheduler did not ask within a second, or asked another replica
	outcomeGone       = "gone"       // there is no such pod any more
	outcomeError      = "error"      // the API server failed or refused
)

type metrics struct {
	prometheus.Collector // all of them

	wakes   *prometheus.CounterVec
	patches prometheus.Counter
	dropped prometheus.Counter
	judging prometheus.Counter
}

func newMetrics(waiting *atomic.Int64) *metrics {
	registry := prometheus.NewRegistry()
	auto := promauto.With(registry)
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "outboard_wakeup_waiting_pods", Help: "Pods that wait because every node they were asked about was rejected here.",
	}, func() float64 { return float64(waiting.Load()) })
	m := &metrics{
		Collector: registry,
		wakes: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_wakeup_wakes_total", Help: "Waiting pods woken, by outcome (fits, rejected, unanswered, gone, error).",
		}, []string{"outcome"}),
		patches: auto.NewCounter(prometheus.CounterOpts{
			Name: "outboard_wakeup_patches_total", Help: "Annotations written to waiting pods to wake them.",
		}),
		dropped: auto.NewCounter(prometheus.CounterOpts{
			Name: "outboard_wakeup_dropped_total", Help: "Rejections not remembered because too many pods wait.",
		}),
		judging: auto.NewCounter(prometheus.CounterOpts{
			Name: "outboard_wakeup_judging_seconds_total", Help: "Time spent on judging waiting pods again.",
		}),
	}
	for _, outcome := range []string{outcomeFits, outcomeRejected, outcomeUnanswered, outcomeGone, outcomeError} {
		m.wakes.WithLabelValues(outcome)
	}
	return m
}
