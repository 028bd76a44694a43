package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"
)

// serveHTTP serves the serving listener.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	if hasBody(r) {
		// Not http.Server.ReadTimeout: it starts with the header. This deadline ends with the body, when the
		// http.Server resets it.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.opts.BodyTimeout))
	}
	s.protect(http.HandlerFunc(s.admit), w, r)
}

// admit calls the handler for requests that it may see.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) {
	if s.identity != nil && !s.identity.admit(w, r) {
		return
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		s.metrics.bodyRefusals.WithLabelValues(bodyEncoding).Inc()
		hangUp(w, r)
		http.Error(w, fmt.Sprintf("content encoding %q is not supported: send the body without encoding", encoding),
			http.StatusUnsupportedMediaType)
		return
	}
	r, release := s.limitBody(w, r)
	defer release()
	s.opts.Handler.ServeHTTP(w, r)
}

// protect calls the handler and recovers from its panic. The caller gets a 500, or a broken connection if the response
// has started, so that it does not take a partial response for a complete one.
func (s *Server) protect(h http.Handler, w http.ResponseWriter, r *http.Request) {
	rw := &response{ResponseWriter: w, server: s, session: sessionOf(r.Context())}
	defer func() {
		p := recover()
		if p == nil {
			rw.sayGoodbye()
			return
		}
		if p == http.ErrAbortHandler {
			panic(p)
		}
		s.metrics.panics.Inc()
		s.opts.Logger.Error("handler panicked", "method", r.Method, "path", r.URL.Path,
			"panic", slog.StringValue(fmt.Sprint(p)), "stack", string(debug.Stack()))
		if rw.begun {
			panic(http.ErrAbortHandler)
		}
		http.Error(rw, "internal error, see the server's log", http.StatusInternalServerError)
	}()
	h.ServeHTTP(rw, r)
}

// A response asks the client to close the connection if that is due when the response starts. A client that closes by
// itself never uses a connection that the server has just closed.
type response struct {
	http.ResponseWriter
	server  *Server
	session *session
	begun   bool
}

func (r *response) sayGoodbye() {
	if r.begun {
		return
	}
	age := r.server.opts.MaxConnectionAge
	if r.server.stopping.Load() || age > 0 && time.Since(r.session.began) > age {
		r.Header().Set("Connection", "close")
	}
}

func (r *response) WriteHeader(status int) {
	if status >= 200 { // otherwise informational: the response follows
		r.sayGoodbye()
		r.begun = true
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *response) Write(p []byte) (int, error) {
	r.sayGoodbye()
	r.begun = true
	return r.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }
