package server

import (
	"crypto/x509"

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
	bodyEncoding = "encoding"

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
	certExpiry     *prometheus.GaugeVec   // by certificate
	certRenewal    *prometheus.GaugeVec   // by certificate
	callers        *callerCertificates
	connections    *prometheus.CounterVec // by outcome
	openConns      prometheus.Gauge
	inFlightBytes  prometheus.Gauge
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
	callers := new(callerCertificates)
	registry.MustRegister(callers)
	return &metrics{
		Collector: registry,
		callers:   callers,
		refusedCallers: counters("outboard_server_refused_callers_total",
			"Handshakes and requests refused because of the identity of the caller, by reason (no_certificate, unknown_authority, expired, invalid_certificate, name_not_allowed).", "reason",
			refusedNoCertificate, refusedAuthority, refusedExpired, refusedInvalid, refusedName),
		handshakes: counters("outboard_server_failed_handshakes_total",
			"Handshakes that failed, except those of refused callers, by reason (plaintext: a call without TLS, rejected_by_client: the client does not accept the certificate or the protocol, other: port scans and broken connections).",
			"reason", handshakePlaintext, handshakeRejected, handshakeOther),
		reloads: counters("outboard_server_tls_reloads_total",
			"Reloads of the certificate files, by outcome (success, error).", "outcome", reloadOK, reloadError),
		certExpiry: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outboard_server_certificate_expiry_timestamp_seconds",
			Help: "Expiry of the certificate in use (serving, client_ca), in Unix seconds; of several CAs, the one that expires first.",
		}, []string{"certificate"}),
		certRenewal: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outboard_server_certificate_renewal_timestamp_seconds",
			Help: "When the certificate in use (serving, client_ca) should have been replaced: 14 days before its expiry, or with a quarter of its lifetime left if that is later, in Unix seconds.",
		}, []string{"certificate"}),
		connections: counters("outboard_server_connections_total",
			"Connections to the serving listener, by outcome (accepted, evicted: closed to admit another, refused: too many).",
			"outcome", connAccepted, connEvicted, connRefused),
		openConns: auto.NewGauge(prometheus.GaugeOpts{
			Name: "outboard_server_open_connections", Help: "Open connections to the serving listener.",
		}),
		inFlightBytes: auto.NewGauge(prometheus.GaugeOpts{
			Name: "outboard_server_in_flight_body_bytes", Help: "Bytes of request bodies in memory.",
		}),
		reservedBytes: auto.NewGauge(prometheus.GaugeOpts{
			Name: "outboard_server_reserved_bytes",
			Help: "Memory reserved by requests, for their bodies and for decoding them.",
		}),
		bodyRefusals: counters("outboard_server_refused_bodies_total",
			"Request bodies refused, by reason (too_large, busy, timeout, encoding).", "reason", bodyTooLarge, bodyBusy, bodyTimeout, bodyEncoding),
		panics: auto.NewCounter(prometheus.CounterOpts{
			Name: "outboard_server_panics_total", Help: "Panics in handlers; each fails one call.",
		}),
	}
}

// shows sets the times of a certificate in use.
func (m *metrics) shows(use string, c *x509.Certificate) {
	m.certExpiry.WithLabelValues(use).Set(float64(c.NotAfter.Unix()))
	m.certRenewal.WithLabelValues(use).Set(float64(renewal(c).Unix()))
}
