package cluster

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/time/rate"
)

// ErrThrottled means that more Bindings wait to be sent than the rate limit permits in reasonable
// time.
var ErrThrottled = errors.New("too many pods are being bound concurrently")

type permitKey struct{}

// permitted reports whether the context is one of Throttle.
func permitted(ctx context.Context) bool { return ctx.Value(permitKey{}) != nil }

// Throttle waits until the rate limit permits binding one more pod, and returns the context for
// that. Call it before making allocations for the pod: if a Binding waits until its caller gives
// up, its allocations must be released. If the wait would be longer than [Options.ThrottleTimeout]
// or the deadline of the context, Throttle fails immediately with [ErrThrottled]. With a context
// that Throttle has returned, it does not wait.
func (c *Cluster) Throttle(ctx context.Context) (context.Context, error) {
	if permitted(ctx) {
		return ctx, nil
	}
	waiting, cancel := ctx, context.CancelFunc(func() {})
	if longest := c.options.ThrottleTimeout; longest >= 0 {
		waiting, cancel = context.WithTimeout(ctx, longest)
	}
	defer cancel()
	switch err := c.limiter.Wait(waiting); {
	case err == nil:
		return context.WithValue(ctx, permitKey{}, true), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("waiting for the limit of Bindings: %w", context.Cause(ctx))
	}
	c.metrics.binds.WithLabelValues(outcomeThrottled).Inc()
	return nil, fmt.Errorf("%w: the limit of %v Bindings per second would delay this one too long", ErrThrottled, c.options.QPS)
}

// newLimiter returns the limit of Bindings. It never blocks if qps is negative.
func newLimiter(qps float32, burst int) *rate.Limiter {
	if qps < 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(qps), burst)
}
