package cluster

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"outboard.dev/outboard/ledger"
)

// transport sees every request, also those that client-go repeats by itself and
// whose failures it hides.
type transport struct {
	next http.RoundTripper
	// failures counts the requests the API server did not answer: the connection
	// failed, or somebody said in its place that it is not there.
	failures *atomic.Uint64
	// clock learns from the dates of answers.
	clock *ledger.Clock
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if d, ok := req.Context().Value(sendTrackerKey{}).(*sendTracker); ok {
		d.sent.Store(true)
	}
	sent := time.Now()
	resp, err := t.next.RoundTrip(req)
	if err == nil && resp.StatusCode < 500 {
		if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			t.clock.Observe(date, sent, time.Now())
		}
	}
	switch {
	case err != nil:
		if req.Context().Err() == nil { // or it was given up here
			t.failures.Add(1)
		}
	case resp.StatusCode >= 500:
		t.failures.Add(1)
		if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/binding") {
			// client-go would send it again, and the outcome of the first would be
			// taken for that of somebody else's.
			resp.Header.Del("Retry-After")
		}
	}
	return resp, err
}

// WrappedRoundTripper lets client-go reach the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// sendTracker says whether a request may have left this process. It has not while it waits for our own limit of requests, nor
// when no connection could be made.
type sendTracker struct{ sent atomic.Bool }

type sendTrackerKey struct{}

// watch returns the context with which to make the request.
func (d *sendTracker) watch(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, sendTrackerKey{}, d)
	// Without these, as in a transport that does not support them, a request has left when it reaches ours.
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { d.sent.Store(false) }, // it waits for a connection: nothing was written before
		GotConn: func(httptrace.GotConnInfo) { d.sent.Store(true) },
	})
}
