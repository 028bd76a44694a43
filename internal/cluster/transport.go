package cluster

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"outboard.dev/outboard/internal/ledger"
)

// transport sees every request, including retries of client-go, which hides their failures.
type transport struct {
	next http.RoundTripper
	// failures counts the requests without a response of the API server: the connection failed, or
	// a proxy responded that it is unavailable.
	failures *atomic.Uint64
	// clock reads the dates of responses.
	clock *ledger.Clock
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if d, ok := req.Context().Value(sendTrackerKey{}).(*sendTracker); ok {
		d.mark()
	}
	sent := time.Now()
	resp, err := t.next.RoundTrip(req)
	if err == nil && resp.StatusCode < 500 {
		if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			t.clock.Observe(date, sent, time.Now())
		}
	}
	last, _ := req.Context().Value(attemptKey{}).(*attempt)
	last.ended(req, err)
	switch {
	case err != nil:
		if req.Context().Err() == nil { // or it was canceled here
			t.failures.Add(1)
		}
	case resp.StatusCode >= 500:
		t.failures.Add(1)
		if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/binding") {
			// client-go would repeat the request, and return the outcome of the repetition.
			resp.Header.Del("Retry-After")
		}
	}
	return resp, err
}

// WrappedRoundTripper gives client-go access to the underlying transport.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// attempt is the last one to send a request, which client-go may repeat.
type attempt struct {
	err    error // nil: there is a response
	report func(error)
}

type attemptKey struct{}

// ended records the end of an attempt. The attempt may be nil.
func (a *attempt) ended(req *http.Request, err error) {
	if a == nil {
		return
	}
	if a.err = err; err != nil {
		a.err = &url.Error{Op: req.Method, URL: req.URL.String(), Err: err} // as http.Client returns it
		a.report(a.err)
	}
}

// sendTracker records when a request may have left this process; nil if it has not. It has not if
// no connection could be made.
type sendTracker struct{ sent atomic.Pointer[time.Time] }

func (d *sendTracker) mark() {
	now := time.Now()
	d.sent.Store(&now)
}

type sendTrackerKey struct{}

// watch returns the context for the request.
func (d *sendTracker) watch(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, sendTrackerKey{}, d)
	// If a transport does not support these callbacks, the request counts as sent when it reaches
	// ours.
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { d.sent.Store(nil) }, // it waits for a connection: nothing is written yet
		GotConn: func(httptrace.GotConnInfo) { d.mark() },
	})
}
