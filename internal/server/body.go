package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// limitBody returns the request with its body limited, and a function that releases what the
// request holds. The request is a copy, because the http.Server uses its own to determine what is
// left to read.
func (s *Server) limitBody(w http.ResponseWriter, r *http.Request) (*http.Request, func()) {
	if !hasBody(r) {
		return r, func() {}
	}
	l := &lease{memory: s.memory}
	limited := r.WithContext(context.WithValue(r.Context(), leaseKey{}, l))
	limited.Body = &limitedBody{
		ReadCloser: http.MaxBytesReader(w, r.Body, s.opts.MaxBodyBytes), server: s, w: w, request: r, lease: l,
	}
	return limited, l.release
}

// hasBody reports whether the request may have a body.
func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// A limitedBody is a request's body with its limits. One goroutine at a time uses it.
type limitedBody struct {
	io.ReadCloser // bounded by an http.MaxBytesReader
	server        *Server
	w             http.ResponseWriter
	request       *http.Request // the original one
	lease         *lease

	admitted bool
	received int64
	err      error // sticky
}

func (b *limitedBody) Read(p []byte) (n int, err error) {
	if b.err == nil && !b.admitted {
		b.err = b.admit()
		b.admitted = true
	}
	if b.err != nil {
		return 0, b.err
	}
	n, b.err = b.ReadCloser.Read(p)
	b.received += int64(n)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(b.err, &tooLarge) {
		b.err = b.refuse(bodyTooLarge, fmt.Errorf("request body too large: more than the limit of %d bytes", tooLarge.Limit))
	} else if errors.Is(b.err, os.ErrDeadlineExceeded) {
		b.err = b.refuse(bodyTimeout, fmt.Errorf("request body not received in time: %d bytes came within %s",
			b.received, b.server.opts.BodyTimeout))
	}
	return n, b.err
}

// admit reserves memory for the whole body, so that a request that has started to read can read to
// the end. A body of unknown length counts with the maximum.
func (b *limitedBody) admit() error {
	size, most := b.request.ContentLength, b.server.opts.MaxBodyBytes
	switch {
	case size > most:
		return b.refuse(bodyTooLarge, fmt.Errorf("request body too large: %d bytes declared, the limit is %d", size, most))
	case size < 0:
		size = most
	case size <= ordinaryBody:
		return nil
	}
	err := b.lease.take(b.request.Context(), b.lease.memory.bodies, size)
	if errors.Is(err, errBusy) {
		return b.refuse(bodyBusy, err)
	}
	return err
}

func (b *limitedBody) refuse(reason string, err error) error {
	b.server.metrics.bodyRefusals.WithLabelValues(reason).Inc()
	hangUp(b.w, b.request)
	return err
}

// lingerTimeout is how long the server reads the rest of a rejected body after the response.
const lingerTimeout = time.Second

// hangUp closes the connection after the response. Otherwise the http.Server would read the rest of
// the body before it responds, to find the next request. It still reads for a while after the
// response: closing immediately would reset the connection, and the response might be lost.
func hangUp(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingerTimeout))
}
