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

// limiter is the limit of requests to the API server. It is what client-go would use, but for binds that Throttle has let
// through: their requests do not wait again.
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
			ErrThrottled, (time.Duration(missing / float64(l.bucket.Limit()) * float64(time.Second))).Round(100*time.Millisecond), l.QPS())
	}
	return l.bucket.Reserve(), nil
}

// Wait implements flowcontrol.RateLimiter.
func (l *limiter) Wait(ctx context.Context) error {
	if p, ok := ctx.Value(permitKey{}).(*permit); ok {
		if !p.used.CompareAndSwap(false, true) {
			l.bucket.Reserve() // those that Throttle lets through next wait for it
		}
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

// permit is for the requests of one bind. The first of them has been waited for.
type permit struct{ used atomic.Bool }

type permitKey struct{}

func permitted(ctx context.Context) bool { return ctx.Value(permitKey{}) != nil }

// Throttle waits until one more pod may be bound, as far as the limit of requests goes, and returns the context for that: the
// Binding, and what has to be asked to learn its outcome, do not wait again. It is called before anything is claimed for the
// pod: a Binding that waits while its caller gives up leaves a claim to be released. When the wait would be longer than [Options.ThrottleTimeout] it fails at once, with
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
	return context.WithValue(ctx, permitKey{}, new(permit)), nil
}
