package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"testing"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/server"
)

// A call without TLS, and a client that does not trust the certificate, never become a request. A
// metric and the log show them, and tell them from connections that are no calls.
func TestFailedHandshakesAreCounted(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			p := newPKI(t)
			r := start(t, server.Options{TLS: p.options(), Handler: echo})
			certificate := p.issue(t, p.clientCA, certs.Request{CommonName: "scheduler", Client: true})
			with := func(change func(*tls.Config)) *http.Client {
				config := p.config(certificate)
				config.MinVersion, config.MaxVersion = version, version
				change(config)
				return newClient(t, config)
			}
			mustPost(t, newClient(t, nil), "http://"+r.addr+"/filter", "{}", http.StatusBadRequest)
			for range 2 {
				stale := with(func(c *tls.Config) { c.RootCAs = x509.NewCertPool() })
				if status, _, err := post(stale, "https://"+r.addr+"/filter", "{}"); err == nil {
					t.Errorf("a client with another CA got status %d", status)
				}
			}
			refused := with(func(c *tls.Config) { c.GetClientCertificate = nil })
			if status, _, err := post(refused, "https://"+r.addr+"/filter", "{}"); err == nil {
				t.Errorf("a client without a certificate got status %d", status)
			}
			_ = dial(t, r.addr).Close() // a probe
			mustPost(t, with(func(*tls.Config) {}), "https://"+r.addr, "hello", 200)

			r.log.wait(t, "WARN a call without TLS remote=127.0.0.1:", 1)
			r.log.wait(t, "WARN a client ended the handshake error=remote error: tls: ", 2)
			r.log.wait(t, "DEBUG handshake failed error=EOF", 1)
			r.log.wait(t, "DEBUG handshake failed error=client certificate", 1)
			for reason, want := range map[string]float64{"plaintext": 1, "rejected_by_client": 2, "other": 1} {
				if got := r.metric(t, "outboard_server_failed_handshakes_total", reason); got != want {
					t.Errorf("%s: %v, want %v", reason, got, want)
				}
			}
			for reason, want := range map[string]string{"plaintext": "127.0.0.1", "rejected_by_client": "127.0.0.1", "other": ""} {
				if got := r.example(t, "outboard_server_failed_handshakes_total", reason); got != want {
					t.Errorf("%s: the example is %q, want %q", reason, got, want)
				}
			}
			if got := r.example(t, "outboard_server_refused_callers_total", "no_certificate"); got != "127.0.0.1" {
				t.Errorf("no certificate: the example is %q", got)
			}
		})
	}
}
