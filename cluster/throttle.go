package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// ErrThrottled says that more Bindings wait to be sent than the limit of requests lets through in reasonable time.
var ErrThrottled = errors.New("too many pods are being bound at once")

// limiter is the limit of requests to the API server. It is what client-go would use, but for Bindings that Throttle has let
// through: those do not wait again.
type limiter struct {
	bucket *rate.Limiter
	mu     sync.Mutex // so that who looks at the bucket knows what it will get
}

// newLimiter returns nil if there is no limit.
func newLimiter(qps float32, burst int) *limiter {
	if qps < 0 {
		return nil
	}
	return &limiter{bucket: rate.NewLimiter(rate.Limit(qps), burst)}
}

// reserve takes a request out of the bucket, which may be made after the delay. If that is longer than the longest, it takes
// nothing.
func (l *limiter) reserve(longest time.Duration) (*rate.Reservation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if missing := 1 - l.bucket.Tokens(); missing > longest.Seconds()*float64(l.bucket.Limit()) {
		return nil, fmt.Errorf("%w: this one would wait %v for the limit of %v requests per second to the API server",
			ErrThrottled, (time.Duration(missing / float64(l.bucket.Limit()) * float64(time.Second))).Round(time.Millisecond), l.bucket.Limit())
	}
	return l.bucket.Reserve(), nil
}

// Wait implements flowcontrol.RateLimiter.
func (l *limiter) Wait(ctx context.Context) error {
	if d, ok := ctx.Value(departureKey{}).(*departure); ok && d.reserved.CompareAndSwap(true, false) {
		return nil
	}
	return l.bucket.Wait(ctx)
}

// Accept implements flowcontrol.RateLimiter.
func (l *limiter) Accept() { _ = l.bucket.Wait(context.Background()) } // fails only if it could never be made

// TryAccept implements flowcontrol.RateLimiter.
func (l *limiter) TryAccept() bool { return l.bucket.Allow() }

// Stop implements flowcontrol.RateLimiter.
func (l *limiter) Stop() {}

// QPS implements flowcontrol.RateLimiter.
func (l *limiter) QPS() float32 { return float32(l.bucket.Limit()) }

// reservation is a Binding that may be sent without waiting, once.
type reservation struct{ used atomic.Bool }

type reservationKey struct{}

// Throttle waits until one more Binding may be sent, as far as the limit of requests goes, and returns the context to give to
// Bind, which then does not wait. It is called before anything is claimed for the pod: a Binding that waits while its caller
// gives up leaves a claim to be released. When the wait would be longer than [Options.ThrottleTimeout] it fails at once, with
// [ErrThrottled].
func (c *Cluster) Throttle(ctx context.Context) (context.Context, error) {
	if c.limiter == nil {
		return ctx, nil
	}
	r, err := c.limiter.reserve(c.options.ThrottleTimeout)
	if err != nil {
		c.metrics.binds.WithLabelValues(outcomeThrottled).Inc()
		return nil, err
	}
	if delay := r.Delay(); delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			r.Cancel()
			return nil, fmt.Errorf("waiting for the limit of requests to the API server: %w", context.Cause(ctx))
		}
	}
	return context.WithValue(ctx, reservationKey{}, new(reservation)), nil
}

// reserved says whether the context is one that Throttle returned, and that no Binding has used yet.
func reserved(ctx context.Context) bool {
	r, ok := ctx.Value(reservationKey{}).(*reservation)
	return ok && r.used.CompareAndSwap(false, true)
}
