package poll

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/signal"
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

// reader reads one signal repeatedly.
type reader struct {
	Signal
	publisher Publisher
	now       func() time.Time
	metrics   *metrics
	logger    *slog.Logger
	cancel    context.CancelFunc // nil before it is started
	ended     chan struct{}

	// Only run uses these.
	reading  reading   // nil: not read yet
	began    time.Time // of the reading
	counting bool      // values of the reading for unknown nodes are not counted yet
	failures int       // in a row
	noNode   error     // the last reading has values, and none of them is about a node
	nodes    *snapshot.NodeIndex

	mu     sync.Mutex
	status Status
}

func newReader(p *Poller, s Signal) *reader {
	p.metrics.begin(s.Settings.Name)
	return &reader{
		Signal: s, publisher: p.options.Publisher, now: p.options.Now, metrics: p.metrics, logger: p.options.Logger.With("signal", s.Settings.Name),
		ended: make(chan struct{}), status: Status{Name: s.Settings.Name},
	}
}

// Status returns the status of the signal.
func (r *reader) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// result is what came of a read.
type result struct {
	samples []signal.Sample
	err     error
	began   time.Time
}

// run reads and publishes until ctx ends. Each read has its own goroutine, so that values become
// stale in time even if the source does not return. If a read is still running at the end, the
// returned channel receives its result.
func (r *reader) run(ctx context.Context) <-chan result {
	var changed <-chan struct{}
	if c, ok := r.Source.(signal.Changer); ok {
		changed = c.Changed()
	}
	results := make(chan result, 1)
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
			return results
		case <-next.C:
			if !reading {
				reading, pending = true, false
				go func() { results <- r.read(ctx) }()
			}
		case <-changed:
			if pending = reading; !reading {
				next.Reset(leastPause)
			}
		case result := <-results:
			reading = false
			if ctx.Err() != nil {
				return nil
			}
			pause := r.take(result)
			if pending {
				pause = leastPause
			}
			next.Reset(pause)
			r.publish(expiry)
			r.metrics.reading(r.Settings.Name, result.err) // after publishing, so that the metric counts published readings
		case <-expiry.C:
			r.publish(expiry)
		case <-look.C:
			if r.About == policy.AboutNodes && r.publisher.View().NodeIndex() != r.nodes {
				r.publish(expiry)
			}
		}
	}
}

// read reads the source once.
func (r *reader) read(ctx context.Context) (got result) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.Settings.Timeout, fmt.Errorf("no response within %s", r.Settings.Timeout))
	defer cancel()
	began := r.now()
	defer func() {
		if p := recover(); p != nil {
			got = result{err: fmt.Errorf("panic: %v", p)}
		}
		if got.err != nil && ctx.Err() != nil {
			got.err = context.Cause(ctx) // more specific than "context deadline exceeded"
		}
		got.began = began
	}()
	samples, err := r.Source.Read(ctx, signal.Limits{Values: signal.MaxValues, Bytes: signal.MaxBytes})
	if err == nil && len(samples) > signal.MaxValues {
		err = signal.ErrTooMany
	}
	return result{samples: samples, err: err}
}

// take handles the result of a read, and returns the pause before the next one.
func (r *reader) take(got result) time.Duration {
	r.mu.Lock()
	r.status.Err, r.status.Tried = got.err, true
	r.mu.Unlock()
	if got.err != nil {
		if r.failures++; r.failures == 1 {
			r.logger.Warn("cannot read the signal; its last values stay in use until they are stale", "error", got.err)
		}
		return vary(min(firstRetry<<min(r.failures-1, 20), r.Settings.Interval))
	}
	if r.failures > 0 {
		r.logger.Info("reading the signal works again", "failures", r.failures)
	}
	r.failures = 0
	now := r.now()
	r.began = got.began
	r.reading = accept(got.samples, got.began, now, func(why string) { r.metrics.dropped(r.Settings.Name, why, 1) })
	r.counting = true
	return vary(r.Settings.Interval)
}

// vary returns a random pause up to d, so that replicas do not read at the same time. The smallest
// maxAge that [signal.Settings.Validate] accepts depends on the longest pause.
func vary(d time.Duration) time.Duration { return d - rand.N(d/5+1) }

// publish publishes the signal, and sets the timer to when the next value becomes stale.
func (r *reader) publish(expiry *time.Timer) {
	if r.reading == nil {
		return
	}
	known := r.reading
	var noNode error // some values about other machines are usual
	view := r.publisher.View()
	if r.About == policy.AboutNodes && view.Len() > 0 {
		var unknown []string
		if known, unknown = r.reading.known(view); r.counting {
			r.metrics.dropped(r.Settings.Name, unknownNode, len(unknown))
			r.counting = false
		}
		if len(known) == 0 && len(unknown) > 0 {
			noNode = fmt.Errorf("all values (%d) are about unknown nodes, such as %.60q: each needs the name or the "+
				"InternalIP of one node; in PromQL, join the name (docs/signals.md)", len(unknown), unknown[0])
		}
	}
	if noNode != nil && r.noNode == nil {
		r.logger.Warn("no value of the signal is about a node", "error", noNode)
	}
	r.noNode = noNode
	r.nodes = view.NodeIndex()
	now := r.now()
	values, stale, expires := known.aged(now, r.Settings.MaxAge)
	if !expires.IsZero() {
		expiry.Reset(expires.Sub(now))
	}
	r.publisher.SetSignal(snapshot.NewSignal(r.Settings.Name, values))
	r.mu.Lock()
	before := r.status.Stale
	if r.failures == 0 {
		r.status.Err = noNode
	}
	r.status.Values, r.status.Stale, r.status.Newest, r.status.Read = len(values), stale, known.newest(), true
	status := r.status
	r.mu.Unlock()
	r.metrics.stand(status)
	if stale > before {
		err := status.Err
		switch {
		case err != nil:
		case now.Sub(r.began) >= r.Settings.MaxAge:
			err = fmt.Errorf("no reading has ended since the one that began at %s", r.began.UTC().Format(time.RFC3339))
		default:
			err = errors.New("the last reading has old values, or omits them")
		}
		r.logger.Warn("values of the signal are stale", "stale", stale, "values", len(values), "error", err)
	}
}
