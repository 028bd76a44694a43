package server

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Label values of the metrics.
const (
	refusedNoCertificate = "no_certificate"
	refusedAuthority     = "unknown_authority"
	refusedExpired       = "expired"
	refusedInvalid       = "invalid_certificate"
	refusedName          = "name_not_allowed"

	handshakePlaintext = "plaintext"
	handshakeRejected  = "rejected_by_client"
	handshakeOther     = "other"

	bodyTooLarge = "too_large"
	bodyBusy     = "busy"
	bodyTimeout  = "timeout"

	connAccepted = "accepted"
	connEvicted  = "evicted"
	connRefused  = "refused"

	reloadOK    = "success"
	reloadError = "error"

	certServing  = "serving"
	certClientCA = "client_ca"
)

type metrics struct {
	prometheus.Collector // all of them

	refusedCallers *prometheus.CounterVec // by reason
	handshakes     *prometheus.CounterVec // failed ones, by reason
	reloads        *prometheus.CounterVec // by outcome
	certificates   certificateTimes       // by use
	callers        callers
	connections    *prometheus.CounterVec // by outcome
	reservedBytes  prometheus.Gauge
	bodyRefusals   *prometheus.CounterVec // by reason
	panics         prometheus.Counter
}

func newMetrics() *metrics {
	registry := prometheus.NewRegistry()
	auto := promauto.With(registry)
	counters := func(name, help, label string, values ...string) *prometheus.CounterVec {
		vec := auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		for _, v := range values {
			vec.WithLabelValues(v) // so that a rate includes the first refusal
		}
		return vec
	}
	gauges := func(name, help, label string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
	}
	return &metrics{
		Collector: registry,
		refusedCallers: counters("outboard_server_refused_callers_total",
			"Refused callers (no_certificate, unknown_authority, expired, invalid_certificate, "+
				"name_not_allowed).", "reason",
			refusedNoCertificate, refusedAuthority, refusedExpired, refusedInvalid, refusedName),
		handshakes: counters("outboard_server_failed_handshakes_total",
			"Failed handshakes, except of refused callers (plaintext: without TLS, rejected_by_client: "+
				"the client refuses the certificate or protocol, other: port scans).", "reason",
			handshakePlaintext, handshakeRejected, handshakeOther),
		reloads: counters("outboard_server_tls_reloads_total",
			"Reloads of the certificate files (success, error).", "outcome", reloadOK, reloadError),
		certificates: certificateTimes{
			expiry: gauges("outboard_server_certificate_expiry_timestamp_seconds",
				"Expiry of the certificate in use; of several CAs, of the first to expire.", "certificate"),
			renewal: gauges("outboard_server_certificate_renewal_timestamp_seconds",
				"When the certificate in use should have been replaced: 14 days before its expiry, "+
					"or with a quarter of its lifetime left if that is later.", "certificate"),
		},
		callers: callers{seen: map[string]time.Time{}, certificateTimes: certificateTimes{
			expiry: gauges("outboard_server_caller_certificate_expiry_timestamp_seconds",
				"Expiry of the last client certificate of each caller of the last day, at most 32.", "caller"),
			renewal: gauges("outboard_server_caller_certificate_renewal_timestamp_seconds",
				"When that certificate should have been replaced, "+
					"as for outboard_server_certificate_renewal_timestamp_seconds.", "caller"),
		}},
		connections: counters("outboard_server_connections_total",
			"Connections (accepted, evicted: closed to admit another, refused: too many).", "outcome", connAccepted, connEvicted, connRefused),
		reservedBytes: auto.NewGauge(prometheus.GaugeOpts{
			Name: "outboard_server_reserved_bytes",
			Help: "Memory reserved for bodies of more than 96 KiB and for decoding them.",
		}),
		bodyRefusals: counters("outboard_server_refused_bodies_total",
			"Refused request bodies (too_large, busy, timeout).", "reason",
			bodyTooLarge, bodyBusy, bodyTimeout),
		panics: auto.NewCounter(prometheus.CounterOpts{
			Name: "outboard_server_panics_total", Help: "Panics in handlers; each fails one call.",
		}),
	}
}

// certificateTimes are metrics of certificates, by a label.
type certificateTimes struct{ expiry, renewal *prometheus.GaugeVec }

func (t certificateTimes) set(label string, expiry, renewal time.Time) {
	t.expiry.WithLabelValues(label).Set(float64(expiry.Unix()))
	t.renewal.WithLabelValues(label).Set(float64(renewal.Unix()))
}

const (
	// maxCallers bounds how many callers the metrics name: whoever has a key of the client CA
	// chooses names.
	maxCallers = 32
	// callerKept is how long a caller that does not connect any more stays in the metrics. A caller
	// that calls connects again every few minutes: see Options.MaxConnectionAge.
	callerKept = 24 * time.Hour
)

// callers has the times of the certificates with which allowed callers connected last, by their
// names. It is safe for concurrent use.
type callers struct {
	certificateTimes

	mu   sync.Mutex
	seen map[string]time.Time // the callers in the metrics
}

// saw records an allowed caller, and forgets those that have not connected for long.
func (c *callers) saw(name string, expiry, renewal time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, oldest := time.Now(), name
	c.seen[name] = now
	c.set(name, expiry, renewal)
	for other, seen := range c.seen {
		if now.Sub(seen) > callerKept {
			c.forget(other)
		} else if seen.Before(c.seen[oldest]) {
			oldest = other
		}
	}
	if len(c.seen) > maxCallers {
		c.forget(oldest)
	}
}

func (c *callers) forget(name string) {
	delete(c.seen, name)
	c.expiry.DeleteLabelValues(name)
	c.renewal.DeleteLabelValues(name)
}
