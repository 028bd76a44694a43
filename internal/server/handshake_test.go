package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/server"
)

// A cutConn is closed instead of the write or read of this number, from 1.
type cutConn struct {
	net.Conn
	at   int
	read bool
}

func (c *cutConn) Write(p []byte) (int, error) {
	if !c.read && c.cut() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func (c *cutConn) Read(p []byte) (int, error) {
	if c.read && c.cut() {
		return 0, net.ErrClosed
	}
	return c.Conn.Read(p)
}

func (c *cutConn) cut() bool {
	if c.at--; c.at == 0 {
		_ = c.Conn.Close()
	}
	return c.at <= 0
}

// Connections of one address end at every stage of a handshake, and some wait there. However many: another caller is served meanwhile, with
// handshakes of its own.
func TestBrokenHandshakesKeepNoTurn(t *testing.T) {
	p := newPKI(t)
	r := start(t, server.Options{TLS: p.options(), ReadHeaderTimeout: time.Hour, Handler: echo})
	known, unknown := p.config(p.issue(t, p.clientCA, certs.Request{CommonName: "hostile-1", Client: true})), p.config(nil)
	known.ServerName, unknown.ServerName = "127.0.0.1", "127.0.0.1"
	client := newClient(t, p.config(p.issue(t, p.clientCA, certs.Request{CommonName: "honest", Client: true})))
	client.Transport.(*http.Transport).DialContext = from("127.0.0.3").DialContext
	client.Transport.(*http.Transport).DisableKeepAlives = true

	var broken sync.WaitGroup
	for range 20 {
		for at := range 6 {
			for _, reads := range []bool{true, false} {
				for _, config := range []*tls.Config{known, unknown} {
					broken.Go(func() {
						raw, err := from("127.0.0.2").Dial("tcp", r.addr)
						if err != nil {
							t.Error(err)
							return
						}
						defer raw.Close()
						c := tls.Client(&cutConn{raw, at, reads}, config) // 0: it is not cut
						if c.Handshake() == nil {
							fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
							_, _ = io.CopyN(io.Discard, c, 1) // refused, or not
						}
					})
				}
			}
		}
	}
	for part := range 20 { // of a handshake
		dialFrom(t, "127.0.0.2", r.addr, nil).Write([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")[:part%11+1])
	}
	for range 10 {
		mustPost(t, client, "https://"+r.addr, "hello", 200)
	}
	broken.Wait()
	mustPost(t, client, "https://"+r.addr, "hello", 200)
}

// A call without TLS, and a client that does not trust the certificate, never become a request. A metric and the log show them, and tell
// them from connections that are no calls.
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
