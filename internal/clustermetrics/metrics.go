package clustermetrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"outboard.dev/outboard/internal/ledger/audit"
)

var (
	waitingDesc     = gaugeDesc("outboard_waiting_pods", "Pods that wait for a node, by reason: POLICY.REASON of the most nodes if Outboard rejected them all, or gated, not_tried, scheduler_error, other_scheduler, policy_error or other.", "reason")
	longestDesc     = gaugeDesc("outboard_waiting_pods_longest_seconds", "How long the pod waits that waits longest.", "reason")
	boundDesc       = gaugeDesc("outboard_recently_bound_pods", "Pods of the profiles that were bound in the last 15 minutes, without those of DaemonSets and static pods.")
	unallocatedDesc = gaugeDesc("outboard_unallocated_pods", "Bound pods without a required allocation, because Outboard did not bind them.", "resource")
	findingsDesc    = gaugeDesc("outboard_audit_findings", "What outboard gpus --audit finds (overallocated, overcommitted, leaked, unannotated, unallocated, unaudited).", "finding")
	capacityDesc    = gaugeDesc("outboard_resource_capacity", "Capacity of the resource: of all nodes, or of the ledgers if nodes do not have the resource.", "resource")
	allocatedDesc   = gaugeDesc("outboard_resource_allocated", "How much of the resource pods have, in the 20 namespaces that have most, and (other).", "resource", "namespace")
	unusableDesc    = gaugeDesc("outboard_resource_unusable", "How much is free on units that have too little for a pod, on average over pods as the current ones.", "resource")
	durationDesc    = gaugeDesc("outboard_survey_duration_seconds", "Duration of the latest pass over all nodes and pods, about once a minute.")
)

func gaugeDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// metrics are those of the latest result.
type metrics struct {
	latest   *atomic.Pointer[result]
	bindings prometheus.Counter
}

func newMetrics(latest *atomic.Pointer[result]) *metrics {
	return &metrics{latest: latest, bindings: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "outboard_unallocated_bindings_total",
		Help: "Pods bound without a required allocation while this process ran.",
	})}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{waitingDesc, longestDesc, boundDesc, unallocatedDesc, findingsDesc, capacityDesc, allocatedDesc, unusableDesc, durationDesc} {
		to <- desc
	}
	m.bindings.Describe(to)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	m.bindings.Collect(to)
	r := m.latest.Load()
	if r == nil {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(durationDesc, r.took.Seconds())
	for reason, w := range r.waiting {
		gauge(waitingDesc, float64(w.pods), reason)
		gauge(longestDesc, w.longest.Seconds(), reason)
	}
	gauge(boundDesc, float64(r.bound))
	for resource, pods := range r.unallocated {
		gauge(unallocatedDesc, float64(pods), resource)
	}
	for _, kind := range audit.Kinds() {
		gauge(findingsDesc, float64(r.findings[kind]), string(kind))
	}
	for name, r := range r.resources {
		gauge(capacityDesc, float64(r.capacity), name)
		gauge(unusableDesc, r.unusable, name)
		for namespace, amount := range r.allocated {
			gauge(allocatedDesc, float64(amount), name, namespace)
		}
	}
}
