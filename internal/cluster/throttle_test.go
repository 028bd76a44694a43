package cluster

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A request whose turn comes after the deadline of its context fails at once, as if it had waited.
func TestTurnAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(1, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		for i, want := range []error{nil, nil, context.DeadlineExceeded} {
			if err := l.Wait(ctx); !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("request %d: %v, want %v", i, err, want)
			}
		}
		if ctx.Err() != nil {
			t.Error("the last one has waited until the deadline")
		}
	})
}

// With a negative ThrottleTimeout, all callers get their turn, however many wait, and another request waits for one of them only.
func TestThrottleInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Cluster{limiter: newLimiter(10, 1), options: Options{ThrottleTimeout: -1}}
		begin := time.Now()
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() {
				ctx, err := c.Throttle(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				waited := time.Now()
				if again, err := c.Throttle(ctx); err != nil || again != ctx || !time.Now().Equal(waited) {
					t.Errorf("with its own context, a caller waits again (%v)", err)
				}
			})
		}
		synctest.Wait()
		if err := c.limiter.Wait(t.Context()); err != nil || time.Since(begin) > 200*time.Millisecond {
			t.Errorf("beside 100 callers, another request waits for %v (%v)", time.Since(begin), err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Throttle(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that gives up: %v", err)
		}
		group.Wait()
		if took := time.Since(begin); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("100 callers and another request have taken %v, at 10 per second", took)
		}
	})
}
