package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/server"
)

// runToItsEnd runs a server that is already stopped when it starts.
func runToItsEnd(t *testing.T, s *server.Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Errorf("Run() returned %v", err)
	}
}

func TestPanicsAreSurvived(t *testing.T) {
	r := start(t, server.Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/before":
			panic("before the answer")
		case "/within":
			fmt.Fprint(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic("within the answer")
		case "/abort":
			panic(http.ErrAbortHandler)
		}
		echo(w, r)
	})})
	client := newClient(t, nil)
	for _, path := range []string{"/before", "/within"} {
		if _, answer, err := post(client, "http://"+r.addr+path, "secret"); err == nil {
			t.Errorf("a panic during %s: %q looks complete", path, answer)
		}
	}
	if _, _, err := post(client, "http://"+r.addr+"/abort", ""); err == nil {
		t.Error("an aborted response looks complete")
	}
	mustPost(t, client, "http://"+r.addr, "hello", 200)
	if got := r.metric(t, "outboard_server_panics_total"); got != 2 {
		t.Errorf("%v panics, want 2", got)
	}
	line := r.log.wait(t, "handler panicked", 2)
	if !strings.Contains(line, "within the answer") || !strings.Contains(line, "serve_test.go") || strings.Contains(r.log.all(), "secret") {
		t.Errorf("logged %q, want the reason, the stack and no body", line)
	}
}

func TestHugeHeaderIsRefused(t *testing.T) {
	r := start(t, server.Options{Handler: echo})
	req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+r.addr, nil)
	req.Header.Set("X", strings.Repeat("x", 64<<10))
	resp, err := newClient(t, nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got status %d, want 431", resp.StatusCode)
	}
}

// Many connections that never finish a header use up the maximum. The server closes them for real
// callers, with TLS and without.
func TestSlowlorisDoesNotKeepCallersOut(t *testing.T) {
	p := newPKI(t)
	for name, tls := range map[string]*server.TLSOptions{"plain": nil, "tls": p.options("caller")} {
		t.Run(name, func(t *testing.T) {
			const maximum, hostile = 32, 500
			r := start(t, server.Options{TLS: tls, MaxConnections: maximum, ReadHeaderTimeout: time.Hour, Handler: echo})
			url, client, beginning := "http://"+r.addr, newClient(t, nil), "POST / HTTP/1.1\r\nX: "
			if tls != nil {
				beginning = "\x16\x03\x01" // of a handshake
				url, client = "https://"+r.addr, newClient(t, p.config(p.issue(t, p.clientCA, certs.Request{CommonName: "caller", Client: true})))
			}
			mustPost(t, client, url, "hello", 200)
			for i := range hostile {
				fmt.Fprint(dial(t, r.addr), beginning)
				if i%50 == 0 {
					mustPost(t, client, url, "hello", 200) // on its own connection
				}
			}
			client.CloseIdleConnections()
			mustPost(t, client, url, "hello", 200) // on a new one
			if got := r.metric(t, "outboard_server_connections_total", "evicted"); got < hostile-maximum {
				t.Errorf("%v connections evicted, want at least %d", got, hostile-maximum)
			}
		})
	}
}

// The server asks a client that keeps its connection open to make a new one, and the client loses
// no call.
func TestOldConnectionsAreRenewed(t *testing.T) {
	r := start(t, server.Options{MaxConnectionAge: time.Nanosecond, Handler: echo})
	client := newClient(t, nil)
	for range 3 {
		mustPost(t, client, "http://"+r.addr, "hello", 200)
	}
	if got := r.metric(t, "outboard_server_connections_total", "accepted"); got != 3 {
		t.Errorf("%v connections for 3 calls, want 3", got)
	}
	r = start(t, server.Options{MaxConnectionAge: -1, Handler: echo})
	c := dial(t, r.addr)
	answers := bufio.NewReader(c)
	for range 3 {
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
		resp, err := http.ReadResponse(answers, nil)
		if err != nil || resp.Close {
			t.Fatalf("got response %v, %v; want one that keeps the connection open", resp, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
	}
}

// All calls over one HTTP/2 connection would go to one replica.
func TestHTTP2IsNotOffered(t *testing.T) {
	p := newPKI(t)
	r := start(t, server.Options{TLS: p.options(), Handler: echo})
	client := newClient(t, p.config(p.issue(t, p.clientCA, certs.Request{Client: true})))
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	resp, err := client.Post("https://"+r.addr, "", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 1 {
		t.Errorf("got HTTP/%d", resp.ProtoMajor)
	}
}
