package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/semaphore"
)

// adminHandler returns the handler of the admin listener.
func (s *Server) adminHandler() http.Handler {
	opts := s.opts.Admin
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", s.serveReady)
	if opts.Gatherer != nil {
		errorLog := log.New(&netLog{logger: s.opts.Logger}, "", 0)
		mux.Handle("GET /metrics", promhttp.HandlerFor(opts.Gatherer, promhttp.HandlerOpts{ErrorLog: errorLog}))
	}
	if opts.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	for pattern, handler := range opts.Handlers {
		mux.Handle(pattern, handler)
	}
	inTurn := s.oneAtATime(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch local := toLoopback(r); {
		case local && !NamesThisHost(r.Host):
			http.Error(w, "no Host "+strconv.Quote(r.Host)+" here: use localhost or an IP address in the URL",
				http.StatusMisdirectedRequest)
		case !local && !opts.AllowRemote && !slices.Contains(remotePaths, r.URL.Path):
			http.Error(w, "other hosts may only read "+strings.Join(remotePaths, ", ")+
				": read the rest on this host, or with outboard ui or kubectl port-forward", http.StatusForbidden)
		default:
			s.protect(inTurn, w, r)
		}
	})
}

const (
	// adminQueue is how many requests to the admin address may be in progress, except probes and
	// profiles. It is much less than adminConnections, so that a probe always gets a connection:
	// for it, the listener closes one without a request.
	adminQueue = 32

	// adminTimeout bounds such a request, from its header to the end of its response.
	adminTimeout = 30 * time.Second

	adminBusy = "busy with other requests to the admin address"
)

// oneAtATime serves one request at a time, so that readers of metrics and explanations take little
// time from calls. The response is sent after the turn of the request, so a slow reader delays no
// other. Probes do not wait, and profiles, of which some take long on purpose, are not waited for.
func (s *Server) oneAtATime(h http.Handler) http.Handler {
	queue, turn := semaphore.NewWeighted(adminQueue), semaphore.NewWeighted(1)
	inTurn := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), s.opts.BusyTimeout)
		defer cancel()
		if turn.Acquire(ctx, 1) != nil {
			http.Error(w, adminBusy, http.StatusServiceUnavailable)
			return
		}
		defer turn.Release(1)
		s.protect(h, w, r)
	})
	buffered := http.TimeoutHandler(inTurn, adminTimeout, adminBusy)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == "/healthz", path == "/readyz", strings.HasPrefix(path, "/debug/pprof/"):
			h.ServeHTTP(w, r)
		case !queue.TryAcquire(1):
			w.Header().Set("Connection", "close")
			http.Error(w, adminBusy, http.StatusServiceUnavailable)
		default:
			defer queue.Release(1)
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(adminTimeout))
			buffered.ServeHTTP(w, r)
		}
	})
}

// remotePaths are what other hosts may read with AllowRemoteMetrics.
var remotePaths = []string{"/healthz", "/readyz", "/metrics"}

// toLoopback reports whether the request came to a loopback address, which only clients on this
// host can reach.
func toLoopback(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.IP.IsLoopback()
}

// NamesThisHost reports whether the Host header of a request to a loopback address is localhost or
// an IP address, with or without a port. Any other name may be that of a web page: its owner can
// let the name resolve to 127.0.0.1 (DNS rebinding), and then the browser of somebody who forwards
// a port to the address lets the page read what the address serves.
func NamesThisHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

// ready is the server's own readiness check.
func (s *Server) ready() error {
	if s.stopping.Load() {
		return errors.New("stopping")
	}
	return nil
}

// serveReady lists every check with ok or its error, and the warnings. The status is 503 unless all
// checks are ok.
func (s *Server) serveReady(w http.ResponseWriter, _ *http.Request) {
	var body bytes.Buffer
	status := http.StatusOK
	checks := append([]Check{{Name: "serving", Ready: s.ready}}, s.opts.Admin.Checks...)
	for _, check := range checks {
		if err := check.Ready(); err != nil {
			status = http.StatusServiceUnavailable
			fmt.Fprintf(&body, "[-] %s: %s\n", check.Name, oneLine(err.Error()))
		} else {
			fmt.Fprintf(&body, "[+] %s: ok\n", check.Name)
		}
	}
	if s.opts.Admin.Warnings != nil {
		for _, line := range s.opts.Admin.Warnings() {
			fmt.Fprintf(&body, "[!] %s\n", oneLine(line))
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes())
}

// oneLine returns the text without control characters: clients choose paths and names in it.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, unicode.IsControl), " ")
}

// listenAdmin rejects addresses that other hosts can reach, unless they are allowed.
func listenAdmin(opts AdminOptions) (net.Listener, error) {
	addr, err := net.ResolveTCPAddr("tcp", opts.Address)
	if err != nil {
		return nil, fmt.Errorf("admin address: %w", err)
	}
	if !opts.AllowRemote && !opts.AllowRemoteMetrics && !addr.IP.IsLoopback() {
		return nil, fmt.Errorf("admin address %q is not a loopback address: "+
			"other hosts could read everything it serves; set expose to permit that", opts.Address)
	}
	l, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("admin address: %w", err)
	}
	return l, nil
}
