package server_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outboard.dev/outboard/internal/server"
)

func TestReadyzListsEveryCheck(t *testing.T) {
	var synced atomic.Bool
	r := start(t, server.Options{Handler: echo, Admin: server.AdminOptions{Checks: []server.Check{
		{Name: "informers", Ready: func() error {
			if !synced.Load() {
				return errors.New("nodes not\nsynced")
			}
			return nil
		}},
		{Name: "ledger", Ready: func() error { return nil }},
	}}})
	r.log.wait(t, "serving", 1)
	if status, body := r.get(t, "/readyz"); status != 503 || body != "[+] serving: ok\n[-] informers: nodes not synced\n[+] ledger: ok\n" {
		t.Errorf("before: %d\n%s", status, body)
	}
	synced.Store(true)
	if status, body := r.get(t, "/readyz"); status != 200 || body != "[+] serving: ok\n[+] informers: ok\n[+] ledger: ok\n" {
		t.Errorf("after: %d\n%s", status, body)
	}
	if status, body := r.get(t, "/healthz"); status != 200 || body != "ok\n" {
		t.Errorf("/healthz: %d %q", status, body)
	}
}

func TestAdminServesWhatItIsGiven(t *testing.T) {
	r := start(t, server.Options{Handler: echo, Admin: server.AdminOptions{Handlers: map[string]http.Handler{
		"GET /explain/{pod}": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.PathValue("pod")) }),
	}}})
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/explain/p1":   {200, "p1"},
		"/metrics":      {200, "outboard_server_panics_total 0"},
		"/missing":      {404, ""},
		"/debug/pprof/": {404, ""},
	} {
		if status, body := r.get(t, path); status != want.status || !strings.Contains(body, want.text) {
			t.Errorf("GET %s = %d %q, want %d with %q", path, status, body, want.status, want.text)
		}
	}
}

// POST reaches the handlers that are for POST, and no other.
func TestAdminPost(t *testing.T) {
	r := start(t, server.Options{Handler: echo, Admin: server.AdminOptions{Handlers: map[string]http.Handler{
		"POST /try":    http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }),
		"GET /explain": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "explained") }),
	}}})
	for request, want := range map[string]string{
		"POST /try": "200 manifest", "PUT /try": "405 Method", "GET /try": "405 Method", "GET /explain": "200 explained", "POST /explain": "405 Method", "POST /metrics": "405 Method",
	} {
		method, path, _ := strings.Cut(request, " ")
		req, _ := http.NewRequestWithContext(t.Context(), method, r.adminURL+path, strings.NewReader("manifest"))
		res, err := newClient(t, nil).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if got := fmt.Sprint(res.StatusCode, " ", string(body)); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
}

func TestPprofIsServedWhenAskedFor(t *testing.T) {
	r := start(t, server.Options{Handler: echo, Admin: server.AdminOptions{Pprof: true}})
	if status, body := r.get(t, "/debug/pprof/goroutine?debug=1"); status != 200 || !strings.Contains(body, "goroutine profile") {
		t.Errorf("%d %q", status, body)
	}
}

func TestAdminKeepsToLoopback(t *testing.T) {
	for _, tc := range []struct {
		address string
		allow   bool
		want    string // part of the error; "" for none
	}{
		{"127.0.0.1:0", false, ""},
		{"localhost:0", false, ""},
		{"0.0.0.0:0", true, ""},
		{"0.0.0.0:0", false, "not a loopback address"},
		{":0", false, "not a loopback address"},
		{"[::]:0", false, "not a loopback address"},
		{"10.0.0.1:0", false, "not a loopback address"},
		{"nonsense", false, "admin address"},
	} {
		s, err := server.New(server.Options{Handler: echo, Address: "127.0.0.1:0", ShutdownDelay: -1, Logger: slog.New(slog.DiscardHandler), Admin: server.AdminOptions{Address: tc.address, AllowRemote: tc.allow}})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Listen()
		if err == nil {
			runToItsEnd(t, s)
		}
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Listen() with admin on %q (remote: %v): %v, want %q", tc.address, tc.allow, err, tc.want)
		}
	}
}

func TestListenErrorNamesTheAddress(t *testing.T) {
	r := start(t, server.Options{Handler: echo})
	for _, opts := range []server.Options{
		{Handler: echo, Address: r.addr, Admin: server.AdminOptions{Address: "127.0.0.1:0"}},
		{Handler: echo, Address: "127.0.0.1:0", Admin: server.AdminOptions{Address: r.addr}},
		{Handler: echo, Address: "nonsense"},
	} {
		s, err := server.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "address") {
			t.Errorf("Run() = %v, want an error about the address", err)
		}
	}
}

// However many requests of one client wait for their turn, there is room for a probe, also from the
// same address.
func TestAdminHasRoomForProbes(t *testing.T) {
	began, over := make(chan struct{}, 1), make(chan struct{})
	r := start(t, server.Options{Handler: echo, BusyTimeout: time.Hour, Admin: server.AdminOptions{Handlers: map[string]http.Handler{
		"GET /slow": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			select {
			case began <- struct{}{}:
			default:
			}
			<-over
		}),
	}}})
	defer close(over)
	for i := range 1100 {
		c, err := net.Dial("tcp", r.AdminAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			<-began
		}
	}
	for range 20 {
		if status, body := r.get(t, "/healthz"); status != 200 {
			t.Errorf("%d %s", status, body)
		}
	}
}

// A process that serves no calls has only an admin listener, which reports the checks and ends with
// the context.
func TestAdminAlone(t *testing.T) {
	ready := func() error { return nil }
	r := start(t, server.Options{Admin: server.AdminOptions{Checks: []server.Check{{Name: "cluster", Ready: ready}}}})
	if status, body := r.get(t, "/readyz"); status != 200 || !strings.Contains(body, "cluster: ok") {
		t.Errorf("%d %s", status, body)
	}
	r.stop()
	if <-r.ended; r.err != nil {
		t.Errorf("Run() returned %v", r.err)
	}
}

// A web page whose name resolves to 127.0.0.1 cannot read a port that somebody forwards to the
// admin address.
func TestAdminHost(t *testing.T) {
	for _, everything := range []bool{false, true} {
		r := start(t, server.Options{Handler: echo, Admin: server.AdminOptions{Address: "127.0.0.1:0", AllowRemote: everything}})
		for host, want := range map[string]int{
			"localhost": 200, "LOCALHOST:8081": 200, "127.0.0.1:1": 200, "10.1.2.3": 200, "[::1]:8081": 200, "[::1]": 200,
			"evil.example": 421, "evil.example:8081": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example:80": 421, "outboard": 421, "a:b:c": 421,
		} {
			for _, path := range []string{"/healthz", "/metrics", "/explain/p"} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.adminURL+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Host = host
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				if want == 200 && path != "/healthz" {
					continue // neither is served here
				}
				if res.StatusCode != want {
					t.Errorf("GET %s with Host %q: %s, want %d", path, host, res.Status, want)
				}
			}
		}
	}
}

// Other hosts can reach metrics and health, and nothing else. The address to which a request comes
// decides that.
func TestAdminForOtherHosts(t *testing.T) {
	explain := map[string]http.Handler{"GET /explain/{pod}": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.PathValue("pod")) })}
	all := map[string]int{"/metrics": 200, "/healthz": 200, "/readyz": 200, "/explain/p": 200, "/debug/pprof/": 200} // status by path
	some := map[string]int{"/metrics": 200, "/healthz": 200, "/readyz": 200, "/explain/p": 403, "/debug/pprof/": 403, "/metrics/": 403, "//explain/p": 403}
	to := func(address net.Addr) func(*server.Server) {
		return func(s *server.Server) { s.SetAdminLocalAddr(address) }
	}
	for _, tt := range []struct {
		name       string
		everything bool
		adjust     func(*server.Server)
		want       map[string]int
	}{
		{"to an IPv4 address", false, to(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}), some},
		{"to an IPv6 address", false, to(&net.TCPAddr{IP: net.ParseIP("2001:db8::1")}), some},
		{"to an unknown address", false, to(nil), some},
		{"to loopback", false, func(*server.Server) {}, all},
		{"everything, to an IPv4 address", true, to(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}), all},
		{"everything, to loopback", true, func(*server.Server) {}, all},
	} {
		t.Run(tt.name, func(t *testing.T) {
			admin := server.AdminOptions{Address: "0.0.0.0:0", AllowRemoteMetrics: true, AllowRemote: tt.everything, Handlers: explain, Pprof: true}
			r := start(t, server.Options{Handler: echo, Admin: admin}, tt.adjust)
			_, port, err := net.SplitHostPort(r.AdminAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			r.adminURL = "http://" + net.JoinHostPort("127.0.0.1", port)
			r.log.wait(t, "serving", 1)
			for path, want := range tt.want {
				if status, body := r.get(t, path); status != want {
					t.Errorf("GET %s = %d %q, want %d", path, status, body, want)
				}
			}
		})
	}
}
