package server_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/server"
)

func TestOnlyKnownCallersHaveAnEffect(t *testing.T) {
	p := newPKI(t)
	hour := time.Hour
	now := time.Now()
	const scheduler = "system:kube-scheduler"
	tests := []struct {
		name    string
		allowed []string
		cert    *tls.Certificate
		status  int    // 0: the handshake fails
		reason  string // of the metric
		text    string // in the response
	}{
		{"allowed by common name", []string{"other", scheduler},
			p.issue(t, p.clientCA, certs.Request{CommonName: scheduler, Client: true}), 200, "", "hello"},
		{"allowed by DNS name", []string{"scheduler.example"},
			p.issue(t, p.clientCA, certs.Request{Hosts: []string{"scheduler.example"}, Client: true}), 200, "", "hello"},
		{"allowed by URI", []string{"spiffe://cluster/scheduler"},
			p.issue(t, p.clientCA, certs.Request{URIs: []string{"spiffe://cluster/scheduler"}, Client: true}), 200, "", "hello"},
		{"whoever has a certificate", nil,
			p.issue(t, p.clientCA, certs.Request{Client: true}), 200, "", "hello"},
		{"another name", []string{scheduler},
			p.issue(t, p.clientCA, certs.Request{CommonName: "kubelet", Client: true}), 403, "name_not_allowed", `client "kubelet" is not allowed`},
		{"the name in other letters", []string{scheduler},
			p.issue(t, p.clientCA, certs.Request{CommonName: "System:Kube-Scheduler", Client: true}), 403, "name_not_allowed", "not allowed"},
		{"the name as a part", []string{scheduler},
			p.issue(t, p.clientCA, certs.Request{CommonName: scheduler + "x", Client: true}), 403, "name_not_allowed", "not allowed"},
		{"the name as organization", []string{scheduler},
			p.issue(t, p.clientCA, certs.Request{CommonName: "x", Organizations: []string{scheduler}, Client: true}), 403, "name_not_allowed", "not allowed"},
		{"no name, and the empty name allowed", []string{""},
			p.issue(t, p.clientCA, certs.Request{Client: true}), 403, "name_not_allowed", "not allowed"},
		{"no certificate", nil, nil, 0, "no_certificate", ""},
		{"unknown authority", nil,
			p.issue(t, newAuthority(t), certs.Request{CommonName: scheduler, Client: true}), 0, "unknown_authority", ""},
		{"the server's authority", nil,
			p.issue(t, p.serverCA, certs.Request{CommonName: scheduler, Client: true}), 0, "unknown_authority", ""},
		{"expired", nil,
			p.issue(t, p.clientCA, certs.Request{CommonName: scheduler, Client: true, NotBefore: now.Add(-2 * hour), NotAfter: now.Add(-hour)}), 0, "expired", ""},
		{"not yet valid", nil,
			p.issue(t, p.clientCA, certs.Request{CommonName: scheduler, Client: true, NotBefore: now.Add(hour)}), 0, "expired", ""},
		{"a server's certificate", nil,
			p.issue(t, p.clientCA, certs.Request{CommonName: scheduler, Server: true, Hosts: []string{"x"}}), 0, "invalid_certificate", ""},
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, tc := range tests {
			t.Run(tls.VersionName(version)+"/"+tc.name, func(t *testing.T) {
				var effects atomic.Int64
				r := start(t, server.Options{TLS: p.options(tc.allowed...), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					effects.Add(1)
					echo(w, r)
				})})
				config := p.config(tc.cert)
				config.MinVersion, config.MaxVersion = version, version
				status, answer, err := post(newClient(t, config), "https://"+r.addr+"/bind", "hello")

				if tc.status == 0 && err == nil || tc.status != 0 && (err != nil || status != tc.status) {
					t.Fatalf("POST: got %d %q, %v; want status %d", status, answer, err, tc.status)
				}
				if !strings.Contains(answer, tc.text) {
					t.Errorf("got response %q, want one with %q", answer, tc.text)
				}
				if got, want := effects.Load() == 1, tc.status == 200; got != want {
					t.Errorf("handler called: %v, want %v", got, want)
				}
				if tc.reason == "" {
					return
				}
				if got := r.metric(t, "outboard_server_refused_callers_total", tc.reason); got != 1 {
					t.Errorf("refused callers for %q: %v, want 1", tc.reason, got)
				}
				r.log.wait(t, "reason="+tc.reason, 1)
				if strings.Contains(r.log.all(), "hello") {
					t.Errorf("the log holds the body:\n%s", r.log.all())
				}
			})
		}
	}
}

// The option Refused can respond to a caller without an allowed name and explain the reason; the
// handler never gets the call. The server refuses other callers as before, and the log has their
// addresses.
func TestRefusedCallersGetAResponse(t *testing.T) {
	p := newPKI(t)
	opts := p.options("system:kube-scheduler")
	opts.Refused = func(w http.ResponseWriter, r *http.Request, err error) bool {
		if r.URL.Path == "/other" {
			return false
		}
		_, _ = fmt.Fprintf(w, "why: %v", err)
		return true
	}
	r := start(t, server.Options{TLS: opts, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the handler was called")
	})})
	known := newClient(t, p.config(p.issue(t, p.clientCA, certs.Request{CommonName: "kubelet", Client: true})))
	const why = `client "kubelet" is not allowed to call: add a name of its certificate to serving.tls.allowedClients`
	for path, want := range map[string]struct {
		status int
		answer string
	}{"/bind": {200, "why: " + why}, "/other": {403, why}} {
		status, answer, err := post(known, "https://"+r.addr+path, "hello")
		if err != nil || status != want.status || strings.TrimSpace(answer) != want.answer {
			t.Errorf("POST %s = %d %q, %v", path, status, answer, err)
		}
	}
	if got := r.metric(t, "outboard_server_refused_callers_total", "name_not_allowed"); got != 2 {
		t.Errorf("refused callers: %v, want 2", got)
	}
	if _, _, err := post(newClient(t, p.config(nil)), "https://"+r.addr+"/bind", "hello"); err == nil {
		t.Error("a caller without a certificate gets a response")
	}
	r.log.wait(t, "caller refused in the handshake", 1)
	for line := range strings.Lines(r.log.all()) {
		if strings.Contains(line, "caller refused") && !strings.Contains(line, "remote=127.0.0.1:") {
			t.Errorf("the log does not have the caller's address: %s", line)
		}
	}
}

func TestWithoutClientCACallersNeedNoCertificate(t *testing.T) {
	p := newPKI(t)
	opts := p.options()
	opts.ClientCAFile = ""
	r := start(t, server.Options{TLS: opts, Handler: echo})
	mustPost(t, newClient(t, p.config(nil)), "https://"+r.addr, "hello", 200)
}

func TestOldTLSIsRefused(t *testing.T) {
	p := newPKI(t)
	r := start(t, server.Options{TLS: p.options(), Handler: echo})
	config := p.config(p.issue(t, p.clientCA, certs.Request{Client: true}))
	config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if _, _, err := post(newClient(t, config), "https://"+r.addr, ""); err == nil {
		t.Error("the server accepts TLS 1.1")
	}
}

func TestBadNewFilesKeepTheOld(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, p *pki)
		want  string
	}{
		{"certificate is garbage", func(t *testing.T, p *pki) { p.overwrite(t, "tls.crt", "garbage") }, "tls.crt"},
		{"key of another", func(t *testing.T, p *pki) {
			pair, err := p.serverCA.Issue(certs.Request{Client: true})
			if err != nil {
				t.Fatal(err)
			}
			p.overwrite(t, "tls.key", string(pair.Key))
		}, "private key does not match"},
		{"authorities are empty", func(t *testing.T, p *pki) { p.overwrite(t, "ca.crt", "") }, "contains no PEM certificate"},
		{"authorities are a key", func(t *testing.T, p *pki) { p.overwrite(t, "ca.crt", string(p.clientCA.Pair().Key)) }, "must contain only certificates"},
		{"authorities are broken", func(t *testing.T, p *pki) {
			p.overwrite(t, "ca.crt", string(p.clientCA.Pair().Cert)+"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
		}, "ca.crt"},
		{"certificate has ended", func(t *testing.T, p *pki) { p.writeServerPair(t, ended) }, "the serving certificate ended at"},
		{"certificate is for later", func(t *testing.T, p *pki) {
			p.writeServerPair(t, func(r *certs.Request) { r.NotBefore = time.Now().Add(time.Hour) })
		}, "compare the clocks"},
		{"authorities have ended", func(t *testing.T, p *pki) {
			old, err := certs.NewAuthority(certs.AuthorityOptions{NotAfter: time.Now().Add(-time.Minute)})
			if err != nil {
				t.Fatal(err)
			}
			p.writeClientCA(t, old)
		}, "the client CA ended at"},
		{"certificate is gone", func(t *testing.T, p *pki) {
			if err := os.Remove(p.file("tls.crt")); err != nil {
				t.Fatal(err)
			}
		}, "no such file"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := newPKI(t)
			r := start(t, server.Options{TLS: p.options(), Handler: echo})
			former := p.config(p.issue(t, p.clientCA, certs.Request{Client: true}))

			tc.spoil(t, p)
			for n, line := 1, ""; !strings.Contains(line, tc.want); n++ { // the server may read between two writes
				line = r.log.wait(t, "cannot reload", n)
			}
			if got := r.metric(t, "outboard_server_tls_reloads_total", "error"); got < 1 {
				t.Errorf("failed reloads: %v, want at least 1", got)
			}
			mustPost(t, newClient(t, former), "https://"+r.addr, "hello", 200)

			next := newAuthority(t)
			p.writeClientCA(t, p.clientCA, next)
			p.writeServerPair(t)
			renewed := newClient(t, p.config(p.issue(t, next, certs.Request{Client: true})))
			for n := 1; ; n++ { // the server may load both files in one reload or in two
				r.log.wait(t, "reloaded the TLS files", n)
				if status, _, err := post(renewed, "https://"+r.addr, "hello"); err == nil && status == 200 {
					break
				}
			}
		})
	}
}

func ended(r *certs.Request) { r.NotAfter = time.Now().Add(-time.Minute) }

func TestCertificateIsUsedOnceItIsValid(t *testing.T) {
	p := newPKI(t)
	r := start(t, server.Options{TLS: p.options(), Handler: echo})
	p.writeServerPair(t, func(r *certs.Request) { r.NotBefore = time.Now().Add(2 * time.Second) })
	r.log.wait(t, "compare the clocks", 1)
	r.log.wait(t, "reloaded the TLS files", 1)
}

// A client that rejects a certificate that has ended needs no other CA.
func TestEndedCertificateIsNamed(t *testing.T) {
	p := newPKI(t)
	p.writeServerPair(t, ended)
	r := start(t, server.Options{TLS: p.options(), Handler: echo})
	if _, _, err := post(newClient(t, p.config(nil)), "https://"+r.addr, "hello"); err == nil {
		t.Error("the client accepts the certificate")
	}
	if line := r.log.wait(t, "a client ended the handshake", 1); !strings.Contains(line, "renew it") || strings.Contains(line, "caFile") {
		t.Error(line)
	}
	p.writeServerPair(t)
	r.log.wait(t, "reloaded the TLS files", 1)
	if r.example(t, "outboard_server_tls_reloads_total", "success") == "" { // has the time as well
		t.Error("the page cannot know when the certificate was renewed")
	}
}

// overwrite replaces a file in one step.
func (p *pki) overwrite(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(p.file("tmp"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.file("tmp"), p.file(name)); err != nil {
		t.Fatal(err)
	}
}

// An identity belongs to the connection, but trust does not: removing the authority also ends the
// trust in existing connections.
func TestOpenConnectionsLoseTrustWithTheirAuthority(t *testing.T) {
	p := newPKI(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	var effects atomic.Int64
	r := start(t, server.Options{TLS: p.options(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		effects.Add(1)
		if r.URL.Path == "/hold" {
			entered <- struct{}{}
			<-leave
		}
		echo(w, r)
	})})
	url := "https://" + r.addr
	busy := newClient(t, p.config(p.issue(t, p.clientCA, certs.Request{CommonName: "busy", Client: true})))
	held := make(chan error)
	go func() {
		_, _, err := post(busy, url+"/hold", "")
		held <- err
	}()
	<-entered

	next := newAuthority(t)
	p.writeClientCA(t, next)
	r.log.wait(t, "reloaded the TLS files", 1)
	leave <- struct{}{}
	if err := <-held; err != nil {
		t.Fatalf("the call in progress during the reload failed: %v", err)
	}
	before := effects.Load()

	var reused bool
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}
	req, _ := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "POST", url, strings.NewReader(""))
	resp, err := busy.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if !reused || resp.StatusCode != http.StatusForbidden || !resp.Close {
		t.Errorf("call on the open connection (reused: %v) = %d (close: %v), want 403 and the end of the connection", reused, resp.StatusCode, resp.Close)
	}
	if effects.Load() != before {
		t.Error("the handler was called for an untrusted caller")
	}
	renewed := newClient(t, p.config(p.issue(t, next, certs.Request{CommonName: "busy", Client: true})))
	mustPost(t, renewed, url, "", 200)
}

func TestCertificateEndsOnAnOpenConnection(t *testing.T) {
	p := newPKI(t)
	r := start(t, server.Options{TLS: p.options(), Handler: echo})
	var end time.Time
	var client *http.Client
	tries := 0.0
	for open := false; !open; { // on a busy machine a certificate may end before there is a connection
		tries++
		end = time.Now().Add(time.Second << int(tries))
		client = newClient(t, p.config(p.issue(t, p.clientCA, certs.Request{Client: true, NotAfter: end})))
		status, answer, err := post(client, "https://"+r.addr, "")
		if open = err == nil && status == http.StatusOK; !open && time.Now().Before(end.Truncate(time.Second)) {
			t.Fatalf("a certificate that is valid until %s: %d %q, %v", end, status, answer, err)
		}
	}
	for {
		status, _, err := post(client, "https://"+r.addr, "")
		if err != nil {
			t.Fatal(err) // the open connection was closed before the server refused a call on it
		}
		if status == http.StatusForbidden {
			break
		}
		if time.Now().After(end.Add(time.Minute)) {
			t.Fatal("the server still accepts the certificate long after it expired")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got := r.metric(t, "outboard_server_refused_callers_total", "expired"); got != tries {
		t.Errorf("refused for expiry: %v, want %v", got, tries)
	}
}

func TestExpiryIsAMetric(t *testing.T) {
	p := newPKI(t)
	r := start(t, server.Options{TLS: p.options(), Handler: echo})
	for _, cert := range []string{"serving", "client_ca"} {
		if got := r.metric(t, "outboard_server_certificate_expiry_timestamp_seconds", cert); got < float64(time.Now().Unix()) {
			t.Errorf("%s expires at %v, want a time in the future", cert, got)
		}
	}
}
