package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Errors of reading a request's body, for [errors.Is], together with [ErrBusy]. The returned errors add details.
var (
	// ErrBodyTooLarge: the body exceeds [Options.MaxBodyBytes]. If its length was declared, nothing was read.
	ErrBodyTooLarge = errors.New("request body too large")

	// ErrBodyTimeout: the body did not arrive within [Options.BodyTimeout].
	ErrBodyTimeout = errors.New("request body not received in time")
)

// readStep is the largest size of one read.
const readStep = 32 << 10

// A countedBody is a request's body with its limits. One goroutine at a time uses it.
type countedBody struct {
	body     io.ReadCloser
	ctx      context.Context
	lease    *lease
	declared int64 // -1 when unknown
	limit    int64
	timeout  time.Duration // for the error's text
	received int64
	inFlight prometheus.Gauge
	refusals *prometheus.CounterVec
	hangUp   func() // closes the connection after the response
	stop     func() // makes a read that waits end

	admitted bool
	err      error // sticky
}

func (b *countedBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if !b.admitted {
		if err := b.admit(); err != nil {
			return 0, err
		}
	}
	if !b.lease.wait(b.stop) {
		return 0, b.refuse(bodyBusy, b.lease.yield())
	}
	n, err := b.body.Read(p[:min(len(p), readStep)])
	_, ended := b.lease.proceed()
	switch b.received += int64(n); {
	case b.received > pacedBody && !ended:
		ended = b.lease.pace(n)
	case b.received > ordinaryBody:
		runtime.Gosched() // a client that always has more to read takes no turn of ten milliseconds
	}
	b.inFlight.Add(float64(n))
	switch {
	case b.received > b.limit:
		return 0, b.refuse(bodyTooLarge, fmt.Errorf("%w: more than the limit of %d bytes", ErrBodyTooLarge, b.limit))
	case ended:
		return n, b.refuse(bodyBusy, b.lease.yield())
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, b.refuse(bodyTimeout, fmt.Errorf("%w: %d bytes came within %s", ErrBodyTimeout, b.received, b.timeout))
	}
	b.err = err
	return n, err
}

// admit waits for room for the whole body, so that a request that has started to read can read to the end. A body of
// unknown length counts with the maximum.
func (b *countedBody) admit() error {
	size := b.declared
	switch {
	case size > b.limit:
		return b.refuse(bodyTooLarge, fmt.Errorf("%w: %d bytes declared, the limit is %d", ErrBodyTooLarge, size, b.limit))
	case size < 0:
		size = b.limit
	}
	if err := b.lease.take(b.ctx, b.lease.budget.forBody(size), size); errors.Is(err, ErrBusy) {
		return b.refuse(bodyBusy, err)
	} else if err != nil {
		b.err = err
		return err
	}
	b.admitted = true
	return nil
}

func (b *countedBody) refuse(reason string, err error) error {
	b.refusals.WithLabelValues(reason).Inc()
	b.err = err
	b.hangUp()
	return err
}

func (b *countedBody) Close() error { return b.body.Close() }

// hasBody reports whether the request may have a body.
func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// limitBody returns the request with its body limited, and a function that releases what the request holds. The request
// is a copy, because the http.Server uses its own to determine what is left to read.
func (s *Server) limitBody(w http.ResponseWriter, r *http.Request, l *lease) (limited *http.Request, release func()) {
	if !hasBody(r) {
		return r, func() {}
	}
	l.budget, l.by = s.budget, callerOf(r)
	body := &countedBody{
		body: r.Body, ctx: r.Context(), lease: l, declared: r.ContentLength,
		limit: s.opts.MaxBodyBytes, timeout: s.opts.BodyTimeout,
		inFlight: s.metrics.inFlightBytes, refusals: s.metrics.bodyRefusals,
		hangUp: func() { hangUp(w, r) },
		stop:   func() { _ = http.NewResponseController(w).SetReadDeadline(time.Now()) },
	}
	limited = r.WithContext(context.WithValue(r.Context(), leaseKey{}, l))
	limited.Body = body
	return limited, func() {
		s.metrics.inFlightBytes.Sub(float64(body.received))
		l.release()
	}
}

// lingerTimeout is how long the server reads the rest of a rejected body after the response.
const lingerTimeout = time.Second

// hangUp closes the connection after the response. Otherwise the http.Server would read the rest of the body before it
// responds, to find the next request. It still reads for a while after the response: closing immediately would reset
// the connection, and the response might be lost.
func hangUp(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingerTimeout))
}
