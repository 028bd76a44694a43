package server

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

// ErrBusy means that other requests hold the memory for requests, and did not release enough in time. Reading a
// request's body and [Reserve] return it; the returned errors add details.
var ErrBusy = errors.New("server busy")

const (
	// ordinaryBody is the size up to which a body never waits for large ones: every connection has room for one. A pod
	// of 32 KiB and 64 KiB of names fit.
	ordinaryBody = 96 << 10

	// Requests that reserve at most lightWork share lightRoom, and never wait for those that reserve more, which share
	// heavyRoom.
	lightWork = 4 << 20
	lightRoom = 64 << 20
	heavyRoom = 64 << 20

	// A transfer that is behind by more than evictBehind, a part of its grace, ends if a request waits for room.
	evictBehind = 500 * time.Millisecond

	// While other requests wait for it, heavyRoom stays closed for heavyRest times as long as a request has held it. So
	// heavy requests take a tenth of a processor's time and hardly slow down other requests. A call for all nodes of a
	// large cluster holds it for less than longWork; after a longer one it stays closed for longRest times as long.
	// maxRest bounds both.
	heavyRest = 9
	longWork  = 20 * time.Millisecond
	longRest  = 99
	maxRest   = 10 * time.Second

	// While other requests wait for room for large bodies, bodies above pacedBody arrive at pacedRate bytes a second in
	// total, after their first pacedBody bytes: receiving them faster takes processor time from other requests.
	pacedBody = 1 << 20
	pacedRate = 16 << 20

	// evictPause is the time between two evictions for requests that wait for room.
	evictPause = 50 * time.Millisecond
)

// A budget bounds the memory of all requests together. A request acquires room for its body before it reads the first
// byte, and room for decoding it after the last byte, always in this order: requests that wait for the second room wait
// only for requests that wait for nothing.
type budget struct {
	large, ordinary, light, heavy *room

	// leastHeavy is the least that a heavy request acquires. It keeps one processor free of heavy requests.
	leastHeavy int64

	pacing *rate.Limiter // of large bodies

	patience time.Duration
	evict    func()       // ends the slowest transfer; nil: transfers are not ended
	evicted  atomic.Int64 // the time of the last call of evict, in Unix nanoseconds
	reserved prometheus.Gauge
}

// A room is memory for one kind of use.
type room struct {
	use     string
	size    int64
	free    *semaphore.Weighted
	waiting atomic.Int64 // requests
}

func newRoom(use string, size int64) *room {
	return &room{use: use, size: size, free: semaphore.NewWeighted(size)}
}

func newBudget(opts Options, reserved prometheus.Gauge, evict func()) *budget {
	return &budget{
		large:      newRoom("large request bodies", opts.MaxInFlightBytes),
		ordinary:   newRoom("request bodies of ordinary size", int64(opts.MaxConnections)*ordinaryBody),
		light:      newRoom("decoding requests of ordinary size", lightRoom),
		heavy:      newRoom("decoding large requests", heavyRoom),
		pacing:     rate.NewLimiter(pacedRate, pacedBody),
		leastHeavy: heavyRoom / int64(max(runtime.GOMAXPROCS(0)-1, 1)),
		patience:   opts.BusyTimeout,
		evict:      evict,
		reserved:   reserved,
	}
}

// forBody returns the room for a body of at most bytes.
func (b *budget) forBody(bytes int64) *room {
	if bytes <= ordinaryBody {
		return b.ordinary
	}
	return b.large
}

// pace waits after n bytes of a body were read; n is at most pacedBody. body is the known length of the body so far.
// pace returns early if ctx ends.
func (b *budget) pace(ctx context.Context, body int64, n int) {
	if body > pacedBody && b.large.waiting.Load() > 0 {
		_ = b.pacing.WaitN(ctx, n) // an error means that the request has ended, and the next read returns it
	}
}

// A lease is the memory that one request holds. One goroutine at a time uses it.
type lease struct {
	budget *budget
	waited time.Duration // so far
	holds  []holding
	usual  [2]holding // memory for holds: for the body and for decoding it
}

type holding struct {
	room  *room
	bytes int64
	since time.Time
}

// take acquires n bytes of the room, or all of the room if that is less. It waits until the lease has waited for the
// budget's patience in total, and evicts slow clients for those that wait.
func (l *lease) take(ctx context.Context, r *room, n int64) error {
	n = min(n, r.size)
	if !r.free.TryAcquire(n) {
		if err := l.wait(ctx, r, n); err != nil {
			return err
		}
	}
	if l.holds == nil {
		l.holds = l.usual[:0]
	}
	l.holds = append(l.holds, holding{r, n, time.Now()})
	l.budget.reserved.Add(float64(n))
	return nil
}

func (l *lease) wait(ctx context.Context, r *room, n int64) error {
	r.waiting.Add(1)
	defer r.waiting.Add(-1)
	began := time.Now()
	defer func() { l.waited += time.Since(began) }()
	waiting, cancel := context.WithTimeout(ctx, l.budget.patience-l.waited)
	defer cancel()
	if l.budget.evict != nil {
		go l.budget.evictUntil(waiting.Done())
	}
	if r.free.Acquire(waiting, n) == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: requests hold the %d bytes for %s, and %d more did not become free within %s",
		ErrBusy, r.size, r.use, n, l.budget.patience)
}

func (b *budget) evictUntil(done <-chan struct{}) {
	ticker := time.NewTicker(evictPause)
	defer ticker.Stop()
	for {
		now, last := time.Now().UnixNano(), b.evicted.Load()
		if now-last >= int64(evictPause) && b.evicted.CompareAndSwap(last, now) { // one goroutine for all that wait
			b.evict()
		}
		select {
		case <-done:
			return
		case <-ticker.C:
		}
	}
}

// release releases everything.
func (l *lease) release() {
	for _, h := range l.holds {
		l.budget.reserved.Sub(float64(h.bytes))
		if h.room == l.budget.heavy && h.room.waiting.Load() > 0 {
			time.AfterFunc(rest(time.Since(h.since)), func() { h.room.free.Release(h.bytes) })
			continue
		}
		h.room.free.Release(h.bytes)
	}
	l.holds = nil
}

// rest returns how long heavyRoom stays closed after a request has held it.
func rest(held time.Duration) time.Duration {
	if held > longWork {
		return min(longRest*held, maxRest)
	}
	return heavyRest * held
}

type leaseKey struct{}

// Reserve adds bytes to the memory that the request with this context holds until its handler returns, such as the
// memory for decoding its body. Call it once, before allocating that memory. It waits for room as reading a body does;
// the error wraps [ErrBusy]. A request that reserves more than there is waits until no other request holds any.
//
// Requests that reserve more than 4 MiB wait for each other. Fewer of them run than there are processors, and while
// more wait there is a pause between them, in which other requests run.
func Reserve(ctx context.Context, bytes int64) error {
	l, _ := ctx.Value(leaseKey{}).(*lease)
	switch {
	case l == nil: // a request without a body
		return nil
	case bytes <= lightWork:
		return l.take(ctx, l.budget.light, bytes)
	}
	return l.take(ctx, l.budget.heavy, max(bytes, l.budget.leastHeavy))
}
