package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"
)

// serveHTTP serves the serving listener.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	if hasBody(r) {
		// Not http.Server.ReadTimeout: it starts with the header. This deadline ends with the body,
		// when the http.Server resets it.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.opts.BodyTimeout))
	}
	s.protect(http.HandlerFunc(s.admit), w, r)
}

// admit calls the handler for requests that it may see.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) {
	if s.identity != nil && !s.identity.admit(w, r) {
		return
	}
	r, release := s.limitBody(w, r)
	defer release()
	s.opts.Handler.ServeHTTP(w, r)
}

// protect calls the handler, and logs its panic. The caller gets a broken connection, so that it
// does not take a partial response for a complete one. The response asks the caller to close the
// connection if that is due: then no call uses a connection that the server has just closed.
func (s *Server) protect(h http.Handler, w http.ResponseWriter, r *http.Request) {
	age := time.Since(sessionOf(r.Context()).began)
	if s.stopping.Load() || s.opts.MaxConnectionAge > 0 && age > s.opts.MaxConnectionAge {
		w.Header().Set("Connection", "close")
	}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p != http.ErrAbortHandler {
			s.metrics.panics.Inc()
			s.opts.Logger.Error("handler panicked", "method", r.Method, "path", r.URL.Path,
				"panic", slog.StringValue(fmt.Sprint(p)), "stack", string(debug.Stack()))
		}
		panic(http.ErrAbortHandler)
	}()
	h.ServeHTTP(w, r)
}
