package signal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

const (
	// firstRetry is the pause after the first failure; it doubles up to the interval.
	firstRetry = time.Second
	// lookAtNodes is how often new nodes are looked for, whose values then count.
	lookAtNodes = time.Second
	// leastPause is the minimum time between two reads of a source that reports changes.
	leastPause = 50 * time.Millisecond
)

// follower reads one signal repeatedly.
type follower struct {
	Followed
	publisher Publisher
	now       func() time.Time
	metrics   *metrics
	logger    *slog.Logger
	cancel    context.CancelFunc // nil before it is started
	ended     chan struct{}

	// Only run uses these.
	reading  reading // nil: not read yet
	states   states  // of hysteresis; nil without
	counting bool    // values of the reading for unknown nodes are not counted yet
	failures int     // in a row
	nodes    *snapshot.NodeIndex

	mu     sync.Mutex
	status Status
}

func newFollower(m *Manager, f Followed) *follower {
	m.metrics.begin(f.Settings.Name)
	return &follower{
		Followed: f, publisher: m.options.Publisher, now: m.options.Now, metrics: m.metrics, logger: m.options.Logger.With("signal", f.Settings.Name),
		ended: make(chan struct{}), status: Status{Name: f.Settings.Name},
	}
}

// Status returns the status of the signal.
func (f *follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// answer is the result of a read.
type answer struct {
	samples []Sample
	err     error
	began   time.Time
	took    time.Duration
}

// run reads and publishes until ctx ends. Each read has its own goroutine, so that values become
// stale in time even if the source does not return. If a read is still running at the end, the
// returned channel receives its result.
func (f *follower) run(ctx context.Context) <-chan answer {
	var changed <-chan struct{}
	if c, ok := f.Source.(Changer); ok {
		changed = c.Changed()
	}
	answers := make(chan answer, 1)
	reading, pending := false, false
	next, expiry, look := time.NewTimer(0), time.NewTimer(time.Hour), time.NewTicker(lookAtNodes)
	defer next.Stop()
	defer expiry.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			if !reading {
				return nil
			}
			return answers
		case <-next.C:
			if !reading {
				reading, pending = true, false
				go func() { answers <- f.read(ctx) }()
			}
		case <-changed:
			if pending = reading; !reading {
				next.Reset(leastPause)
			}
		case a := <-answers:
			reading = false
			if ctx.Err() != nil {
				return nil
			}
			pause := f.take(a)
			if pending {
				pause = leastPause
			}
			next.Reset(pause)
			f.publish(expiry)
			f.metrics.reading(f.Settings.Name, a.err, a.took) // after publishing, so that the metric counts published readings
		case <-expiry.C:
			f.publish(expiry)
		case <-look.C:
			if f.About == policy.AboutNodes && f.publisher.View().NodeIndex() != f.nodes {
				f.publish(expiry)
			}
		}
	}
}

// read reads the source once.
func (f *follower) read(ctx context.Context) (a answer) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.Settings.Timeout, fmt.Errorf("no response within %s", f.Settings.Timeout))
	defer cancel()
	began, started := f.now(), time.Now()
	defer func() {
		if p := recover(); p != nil {
			a = answer{err: fmt.Errorf("panic: %v", p)}
		}
		if a.err != nil && ctx.Err() != nil {
			a.err = context.Cause(ctx) // more specific than "context deadline exceeded"
		}
		a.began, a.took = began, time.Since(started)
	}()
	samples, err := f.Source.Read(ctx, Limits{Values: MaxValues, Bytes: MaxBytes})
	if err == nil && len(samples) > MaxValues {
		err = ErrTooMany
	}
	return answer{samples: samples, err: err}
}

// take handles the result of a read, and returns the pause before the next one. All pauses vary, so
// that replicas do not read at the same time.
func (f *follower) take(a answer) time.Duration {
	f.mu.Lock()
	f.status.Err, f.status.Tried = a.err, true
	f.mu.Unlock()
	if a.err != nil {
		if f.failures++; f.failures == 1 {
			f.logger.Warn("cannot read the signal; its last values stay in use until they are stale", "error", a.err)
		}
		return vary(min(firstRetry<<min(f.failures-1, 20), f.Settings.Interval))
	}
	if f.failures > 0 {
		f.logger.Info("reading the signal works again", "failures", f.failures)
	}
	f.failures = 0
	now := f.now()
	f.reading = accept(a.samples, a.began, now, func(why string) { f.metrics.dropped(f.Settings.Name, why, 1) })
	if h := f.Settings.Hysteresis; h != nil {
		f.states = f.states.step(f.reading, h, f.Settings.MaxAge, MaxValues, now)
		f.reading = f.states.reading()
	}
	f.counting = true
	return vary(f.Settings.Interval)
}

func vary(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// publish publishes the signal, and sets the timer to when the next value becomes stale.
func (f *follower) publish(expiry *time.Timer) {
	if f.reading == nil {
		return
	}
	known := f.reading
	view := f.publisher.View()
	if f.About == policy.AboutNodes && view.Len() > 0 {
		unknown := 0
		if known, unknown = f.reading.known(view); f.counting {
			f.metrics.dropped(f.Settings.Name, unknownNode, unknown)
			f.counting = false
		}
	}
	f.nodes = view.NodeIndex()
	now := f.now()
	values, stale, expires := known.aged(now, f.Settings.MaxAge)
	if !expires.IsZero() {
		expiry.Reset(expires.Sub(now))
	}
	if f.states != nil {
		f.states.date(values)
	}
	f.publisher.SetSignal(snapshot.NewSignal(f.Settings.Name, values))
	f.mu.Lock()
	before := f.status.Stale
	f.status.Values, f.status.Stale, f.status.Newest, f.status.Read = len(values), stale, known.newest(), true
	status := f.status
	f.mu.Unlock()
	f.metrics.stand(status)
	if stale > before {
		err := status.Err
		if err == nil {
			err = errors.New("the source sends old values")
		}
		f.logger.Warn("values of the signal are stale", "stale", stale, "values", len(values), "error", err)
	}
}
