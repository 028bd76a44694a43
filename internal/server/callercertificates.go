package server

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxCallers bounds how many callers the metric names at a time: whoever has a key of the client CA chooses names.
	maxCallers = 32
	// callerKept is how long a caller that does not connect any more stays in the metric. A caller that calls connects again every few
	// minutes: see Options.MaxConnectionAge.
	callerKept = 24 * time.Hour
)

// callerCertificates holds until when the certificates are valid with which callers have connected last. It is a prometheus.Collector, and
// safe for concurrent use.
type callerCertificates struct {
	mu      sync.Mutex
	callers map[string]callerCertificate // by name
}

type callerCertificate struct{ until, renewal, seen time.Time }

// saw records an allowed caller. If there are too many, it forgets the one that has not connected for longest.
func (c *callerCertificates) saw(name string, with callerCertificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.callers == nil {
		c.callers = map[string]callerCertificate{}
	}
	c.callers[name] = with
	if len(c.callers) <= maxCallers {
		return
	}
	oldest := name
	for other, certificate := range c.callers {
		if certificate.seen.Before(c.callers[oldest].seen) {
			oldest = other
		}
	}
	delete(c.callers, oldest)
}

var (
	callerExpiryDesc = gaugeDesc("outboard_server_caller_certificate_expiry_timestamp_seconds",
		"Expiry of the client certificate with which the caller connected last, in Unix seconds, for the callers of the last day, at most 32.", "caller")
	callerRenewalDesc = gaugeDesc("outboard_server_caller_certificate_renewal_timestamp_seconds",
		"When the client certificate with which the caller connected last should have been replaced, as for outboard_server_certificate_renewal_timestamp_seconds.", "caller")
)

func gaugeDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (c *callerCertificates) Describe(to chan<- *prometheus.Desc) {
	to <- callerExpiryDesc
	to <- callerRenewalDesc
}

// Collect implements prometheus.Collector.
func (c *callerCertificates) Collect(to chan<- prometheus.Metric) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, certificate := range c.callers {
		if now.Sub(certificate.seen) > callerKept {
			delete(c.callers, name)
			continue
		}
		to <- prometheus.MustNewConstMetric(callerExpiryDesc, prometheus.GaugeValue, float64(certificate.until.Unix()), name)
		to <- prometheus.MustNewConstMetric(callerRenewalDesc, prometheus.GaugeValue, float64(certificate.renewal.Unix()), name)
	}
}
