package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"
)

// serveHTTP answers the serving listener.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	if hasBody(r) {
		// Not http.Server.ReadTimeout: it would begin with the header. This ends with the body, as the http.Server takes
		// the deadline back then.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.opts.BodyTimeout))
	}
	s.protect(http.HandlerFunc(s.admit), w, r)
}

// admit passes on what the handler may see.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) {
	if s.identity != nil && !s.identity.admit(w, r) {
		return
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		s.metrics.bodyRefusals.WithLabelValues(bodyEncoding).Inc()
		hangUp(w, r)
		http.Error(w, fmt.Sprintf("content encoding %q is not decoded here, send the body as it is", encoding),
			http.StatusUnsupportedMediaType)
		return
	}
	r, release := s.limitBody(w, r)
	defer release()
	s.opts.Handler.ServeHTTP(w, r)
}

// protect calls the handler and survives its panic. The caller gets a 500, or a broken connection when an answer has
// begun, so that half an answer is not taken for a whole one.
func (s *Server) protect(h http.Handler, w http.ResponseWriter, r *http.Request) {
	answer := &response{ResponseWriter: w, server: s, session: sessionOf(r.Context()), transfer: transfer{
		pace: s.pace, end: time.Now().Add(s.opts.WriteTimeout), conn: ownConn(r),
		setDeadline: http.NewResponseController(w).SetWriteDeadline,
	}}
	defer func() {
		p := recover()
		if p == nil {
			answer.sayGoodbye()
			return
		}
		if p == http.ErrAbortHandler {
			panic(p)
		}
		s.metrics.panics.Inc()
		s.opts.Logger.Error("handler panicked", "method", r.Method, "path", r.URL.Path,
			"panic", slog.StringValue(fmt.Sprint(p)), "stack", string(debug.Stack()))
		if answer.begun {
			panic(http.ErrAbortHandler)
		}
		http.Error(answer, "internal error, see the server's log", http.StatusInternalServerError)
	}()
	h.ServeHTTP(answer, r)
}

// A response is an answer that asks the client to leave, if that is due when the answer begins. A client that leaves
// by itself never meets a connection that was closed under its next call.
type response struct {
	http.ResponseWriter
	server   *Server
	session  *session
	transfer transfer
	begun    bool
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
	if status >= 200 { // else informational: the answer is still to come
		r.sayGoodbye()
		r.begun = true
	}
	r.ResponseWriter.WriteHeader(status)
}

// writeStep is how much is written at a time, between two looks at how fast the client takes it in.
const writeStep = 64 << 10

func (r *response) Write(p []byte) (written int, err error) {
	r.sayGoodbye()
	r.begun = true
	for {
		part := p[written:min(written+writeStep, len(p))]
		r.transfer.begin()
		n, err := r.ResponseWriter.Write(part)
		r.transfer.moves(n)
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// Unwrap is for [http.ResponseController].
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }
