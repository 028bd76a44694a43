package server_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/server"
)

func TestShutdownDelayServesAndSaysGoodbye(t *testing.T) {
	r := start(t, server.Options{ShutdownDelay: time.Hour, Handler: echo})
	client := newClient(t, nil)
	call := func() bool {
		t.Helper()
		resp, err := client.Post("http://"+r.addr, "", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); string(body) != "hello" || err != nil {
			t.Errorf("got response %q, %v", body, err)
		}
		return resp.Close
	}
	for range 2 {
		if call() {
			t.Error("a response closes its connection before the shutdown")
		}
	}
	r.stop()
	r.log.wait(t, "stopping", 1)
	if status, body := r.get(t, "/readyz"); status != 503 || !strings.Contains(body, "[-] serving: stopping") {
		t.Errorf("/readyz = %d %q, want 503", status, body)
	}
	if status, _ := r.get(t, "/healthz"); status != 200 {
		t.Errorf("/healthz = %d, want 200 until the server ends", status)
	}
	for range 2 { // on the open connection and on a new one
		if !call() {
			t.Error("a response does not close its connection")
		}
	}
	r.listenerFails(t)
}

// listenerFails ends the server of a test without its shutdown delay.
func (r *replica) listenerFails(t *testing.T) {
	t.Helper()
	r.CloseListener()
	<-r.ended
	if r.err == nil || !strings.Contains(r.err.Error(), "serving listener") {
		t.Errorf("Run() returned %v after its listener failed", r.err)
	}
}

// A thousand requests are in progress when the server stops: all get their responses, and then the
// server ends.
func TestRequestsAtHandAreFinished(t *testing.T) {
	const n = 1000
	entered, leave := make(chan struct{}, n), make(chan struct{})
	r := start(t, server.Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-leave
		echo(w, r)
	})})
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var calls sync.WaitGroup
	for range n {
		calls.Go(func() {
			if status, answer, err := post(client, "http://"+r.addr, "hello"); err != nil || status != 200 || answer != "hello" {
				t.Errorf("call in progress: %d %q, %v", status, answer, err)
			}
		})
	}
	for range n {
		<-entered
	}
	r.stop()
	line := r.log.wait(t, "closed the listener", 1)
	if !strings.Contains(line, fmt.Sprint("inFlight=", n)) {
		t.Errorf("logged %q, want %d in flight", line, n)
	}
	if c, err := net.Dial("tcp", r.addr); err == nil {
		c.Close()
		t.Error("the server still accepts new connections")
	}
	close(leave)
	calls.Wait()
	<-r.ended
	if r.err != nil {
		t.Errorf("Run() returned %v", r.err)
	}
}

func TestDrainTimeoutCutsOff(t *testing.T) {
	entered := make(chan struct{})
	r := start(t, server.Options{DrainTimeout: time.Millisecond, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done() // a handler that respects its context
	})})
	failed := make(chan error)
	client := newClient(t, nil)
	go func() {
		_, _, err := post(client, "http://"+r.addr, "")
		failed <- err
	}()
	<-entered
	r.stop()
	if err := <-failed; err == nil {
		t.Error("the call got a response")
	}
	<-r.ended
	if r.err == nil || !strings.Contains(r.err.Error(), "1 requests cut off") {
		t.Errorf("Run() returned %v, want the number of calls cut off", r.err)
	}
}

// Connections that wait for a request do not delay the end of the server.
func TestIdleConnectionsDoNotHoldUpTheEnd(t *testing.T) {
	p := newPKI(t)
	for name, tls := range map[string]*server.TLSOptions{"plain": nil, "tls": p.options()} {
		t.Run(name, func(t *testing.T) {
			r := start(t, server.Options{TLS: tls, DrainTimeout: time.Hour, ReadHeaderTimeout: time.Hour, Handler: echo})
			client, url := p.client(t, r)
			mustPost(t, client, url, "hello", 200)
			dial(t, r.addr)                           // never sends anything
			fmt.Fprint(dial(t, r.addr), "POST / HTT") // never sends the rest
			r.stop()
			<-r.ended
			if r.err != nil {
				t.Errorf("Run() returned %v", r.err)
			}
		})
	}
}

// The server serves a request that comes on an open connection after the server closed the
// listener, but before the drain ends.
func TestLateRequestOnAnIdleConnectionIsServed(t *testing.T) {
	p := newPKI(t)
	for name, opts := range map[string]server.Options{"plain": {}, "tls": {TLS: p.options()}} {
		t.Run(name, func(t *testing.T) {
			opts.DrainTimeout, opts.Handler = time.Hour, echo
			r := start(t, opts, func(s *server.Server) { s.SetHurryGrace(time.Hour) })
			client, url := p.client(t, r)
			mustPost(t, client, url, "hello", 200)
			r.stop()
			r.log.wait(t, "closed the listener", 1)
			// The body takes longer than an idle connection may: the limit ends when the request
			// has begun.
			if got := mustPost(t, client, url, strings.Repeat("x", 1<<20), 200); len(got) != 1<<20 {
				t.Errorf("got a response of %d bytes", len(got))
			}
			<-r.ended
			if r.err != nil {
				t.Errorf("Run() returned %v", r.err)
			}
		})
	}
}

// client returns a client that the replica trusts, and the replica's URL.
func (p *pki) client(t *testing.T, r *replica) (*http.Client, string) {
	client := newClient(t, p.config(p.issue(t, p.clientCA, certs.Request{CommonName: "caller", Client: true})))
	if r.Server.ServesTLS() {
		return client, "https://" + r.addr
	}
	return client, "http://" + r.addr
}
