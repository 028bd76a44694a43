package server

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NewCallerCertificates returns the metrics of a server, and the function that records a caller.
func NewCallerCertificates() (saw func(name string, until time.Time), metrics prometheus.Collector) {
	m := newMetrics()
	return func(name string, until time.Time) { m.callers.saw(name, until, until) }, m
}

// SetAdminLocalAddr makes each request to the admin listener seem to come to this address of the
// host, which need not have it; nil is an unknown address. Call it before Run.
func (s *Server) SetAdminLocalAddr(address net.Addr) {
	handler := s.admin.Handler
	s.admin.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, address)))
	})
}

// CloseListener makes the serving listener fail.
func (s *Server) CloseListener() { _ = s.listener.Close() }

// SetHurryGrace sets how long the server waits for idle connections at the end. Call it before Run.
func (s *Server) SetHurryGrace(d time.Duration) { s.connections.hurryGrace = d }

// ServesTLS reports whether the serving listener speaks TLS.
func (s *Server) ServesTLS() bool { return s.identity != nil }

// SetShutdownDelay replaces the shutdown delay by an event. Call it before Run.
func (s *Server) SetShutdownDelay(over <-chan time.Time) { s.shutdownDelay = over }
