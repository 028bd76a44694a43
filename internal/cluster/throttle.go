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

// ErrThrottled means that more Bindings wait to be sent than the rate limit permits in reasonable
// time.
var ErrThrottled = errors.New("too many pods are being bound concurrently")

// limiter is the rate limit of requests to the API server. It replaces client-go's; requests of
// binds that Throttle has let through do not wait again. A second client without a limit for these
// would not do: client-go sends a request again after a response with Retry-After, and these
// requests must count.
type limiter struct {
	bucket *rate.Limiter
	mu     sync.Mutex    // makes reading the bucket and taking from it one step
	turn   chan struct{} // has an element while the first of the callers waits that wait without a limit
}

// newLimiter returns nil if there is no limit.
func newLimiter(qps float32, burst int) *limiter {
	if qps < 0 {
		return nil
	}
	return &limiter{bucket: rate.NewLimiter(rate.Limit(qps), burst), turn: make(chan struct{}, 1)}
}

// reserve takes a request out of the bucket, to be sent after the delay. If the delay is longer
// than longest, it takes nothing; a negative one is no limit.
func (l *limiter) reserve(longest time.Duration) (*rate.Reservation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if missing := 1 - l.bucket.Tokens(); longest >= 0 && missing > longest.Seconds()*float64(l.bucket.Limit()) {
		return nil, fmt.Errorf("%w: the limit of %v requests per second to the API server would delay this one by %v",
			ErrThrottled, l.QPS(), (time.Duration(missing / float64(l.bucket.Limit()) * float64(time.Second))).Round(100*time.Millisecond))
	}
	return l.bucket.Reserve(), nil
}

// Wait implements flowcontrol.RateLimiter.
func (l *limiter) Wait(ctx context.Context) error {
	if p, ok := ctx.Value(permitKey{}).(*permit); ok {
		if !p.used.CompareAndSwap(false, true) {
			l.bucket.Reserve() // later calls of Throttle wait for it, too
		}
		return nil
	}
	err := l.bucket.Wait(ctx)
	if _, ends := ctx.Deadline(); err != nil && ends && ctx.Err() == nil { // the deadline comes before the turn
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// Accept implements flowcontrol.RateLimiter.
func (l *limiter) Accept() { _ = l.bucket.Wait(context.Background()) } // fails only if it could never be made

// TryAccept implements flowcontrol.RateLimiter.
func (l *limiter) TryAccept() bool { return l.bucket.Allow() }

// Stop implements flowcontrol.RateLimiter.
func (l *limiter) Stop() {}

// QPS implements flowcontrol.RateLimiter.
func (l *limiter) QPS() float32 { return float32(l.bucket.Limit()) }

// permit is for the requests of one bind. Throttle has waited for the first one.
type permit struct{ used atomic.Bool }

type permitKey struct{}

func permitted(ctx context.Context) bool { return ctx.Value(permitKey{}) != nil }

// Throttle waits until the rate limit permits binding one more pod, and returns the context for
// that: the Binding, and reading the pod to learn its outcome, do not wait again. Call it before
// making claims for the pod: if a Binding waits until its caller gives up, its claims must be
// released. If the wait would be longer than [Options.ThrottleTimeout], Throttle fails immediately
// with [ErrThrottled]. With a context that Throttle has returned, it does not wait.
func (c *Cluster) Throttle(ctx context.Context) (context.Context, error) {
	if c.limiter == nil || permitted(ctx) {
		return ctx, nil
	}
	if c.options.ThrottleTimeout < 0 { // one caller at a time takes from the bucket, so that other requests do not wait for all of them
		select {
		case c.limiter.turn <- struct{}{}:
			defer func() { <-c.limiter.turn }()
		case <-ctx.Done():
			return nil, gaveUp(ctx)
		}
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
			return nil, gaveUp(ctx)
		}
	}
	return context.WithValue(ctx, permitKey{}, new(permit)), nil
}

func gaveUp(ctx context.Context) error {
	return fmt.Errorf("waiting for the limit of requests to the API server: %w", context.Cause(ctx))
}
