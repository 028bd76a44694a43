package server

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ErrBusy means that other requests hold what a request needs, and did not release enough in time, or that this request yielded to another
// caller. Reading a request's body and [ReserveMemory] return it; the returned errors add details.
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

	// waitRoom is for what requests keep while they wait for another server: thousands of ordinary ones.
	waitRoom = 16 << 20

	lightPerProcessor = 8

	// While other callers have sent ordinary requests within lately, a caller rests restTimes as long as decoding and evaluating its
	// latest large request took, see [room.rest]. So what cannot be interrupted delays few of the others: 30 keeps it out of the
	// 99th percentile of their time (bench/hostile).
	restTimes = 30
	lately    = time.Second

	// Meanwhile a caller's bodies of more than pacedBody arrive with at most pace bytes per second: decrypting them takes a processor, too.
	pacedBody = 1 << 20
	pace      = 32 << 20

	// slow is how long a request has waited for its client before it yields to a request of the same caller, or of one that holds less.
	slow = time.Second
)

// A budget bounds the memory of all requests together. A request takes room for its body before it reads the first
// byte, and room for decoding it after the last byte, always in this order: requests that wait for the second room wait
// only for requests that wait for nothing. While a request waits for another server, it holds as much room of a third
// kind as what it has decoded takes, and none for decoding: see [Wait]. It takes that room only if it is free, so this
// adds no cycle.
type budget struct {
	large, ordinary, light, heavy, waiting *room

	// leastLight and leastHeavy are the least that a request takes for decoding. They bound how many requests are decoded and evaluated at a
	// time: lightPerProcessor for each processor, and fewer heavy ones than there are processors.
	leastLight, leastHeavy int64

	patience time.Duration
	reserved prometheus.Gauge
}

func newBudget(opts Options, reserved prometheus.Gauge) *budget {
	processors := int64(runtime.GOMAXPROCS(0))
	b := &budget{
		large:      newRoom("bytes for large request bodies", opts.MaxInFlightBytes),
		ordinary:   newRoom("bytes for request bodies of ordinary size", int64(opts.MaxConnections)*ordinaryBody),
		light:      newRoom("bytes for decoding requests of ordinary size", lightRoom),
		heavy:      newRoom("bytes for decoding large requests", heavyRoom),
		waiting:    newRoom("bytes for requests that wait for another server", waitRoom),
		leastLight: min(lightWork, lightRoom/(lightPerProcessor*processors)),
		leastHeavy: heavyRoom / max(processors-1, 1),
		patience:   opts.BusyTimeout,
		reserved:   reserved,
	}
	b.large.slow, b.ordinary.slow, b.light.slow, b.heavy.slow = slow, slow, slow, slow
	return b
}

// forBody returns the room for a body of at most bytes.
func (b *budget) forBody(bytes int64) *room {
	if bytes <= ordinaryBody {
		return b.ordinary
	}
	return b.large
}

// A lease is what one request holds, and how long it has waited: for its client, to send the body and to receive the response, and for
// rooms. One goroutine at a time calls its methods, except waits and end.
type lease struct {
	budget *budget
	by     string        // the caller
	queued time.Duration // waited for rooms so far

	holds [2]hold // for the body and for decoding it
	held  int
	kept  hold // instead of that for decoding, while it waits for another server

	mu        sync.Mutex
	waited    time.Duration // before since
	since     time.Time     // when the current wait began; zero: it does not wait
	interrupt func()        // ends the current wait
	ended     bool          // end was called
}

// wait begins a wait, which interrupt ends early. It returns false if the request must end. If it returns true, call proceed afterwards.
func (l *lease) wait(interrupt func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.since, l.interrupt = time.Now(), interrupt
	}
	return !l.ended
}

// proceed ends a wait, and returns how long it took, and whether the request must end.
func (l *lease) proceed() (took time.Duration, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	took = time.Since(l.since)
	l.waited += took
	l.since, l.interrupt = time.Time{}, nil
	return took, l.ended
}

// waits makes a lease a holder. It is safe for concurrent use.
func (l *lease) waits(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() {
		return -1
	}
	return l.waited + now.Sub(l.since)
}

// end makes a lease a holder. It is safe for concurrent use.
func (l *lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.interrupt != nil {
		l.interrupt()
	}
}

var errYielded = fmt.Errorf("%w: other requests need the memory that this one held while it waited", ErrBusy)

// yield releases what a request holds that must end, so that its response, which is the returned error, may take its time.
func (l *lease) yield() error {
	l.release()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = false
	return errYielded
}

// take takes n of the room, or all of it if that is less, until the request is over. It waits until the lease has waited for the budget's
// patience in total.
func (l *lease) take(ctx context.Context, r *room, n int64) error {
	h := &l.holds[l.held]
	h.amount, h.holder = n, l
	if !r.takeFree(h, l.by) {
		if err := l.queue(ctx, r, h); err != nil {
			return err
		}
	}
	l.held++
	l.budget.reserved.Add(float64(h.amount))
	return nil
}

func (l *lease) queue(ctx context.Context, r *room, h *hold) error {
	waiting, cancel := context.WithTimeout(ctx, l.budget.patience-l.queued)
	defer cancel()
	if !l.wait(cancel) {
		return l.yield()
	}
	ok := r.take(waiting, h, l.by)
	took, ended := l.proceed()
	l.queued += took
	switch {
	case ok:
		return nil
	case ended:
		return l.yield()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: requests hold the %d %s, and %d more did not become free within %s", ErrBusy, r.size, r.use, h.amount, l.budget.patience)
}

// release releases everything.
func (l *lease) release() {
	for i := range l.held {
		h := &l.holds[i]
		l.budget.reserved.Sub(float64(h.amount))
		if h.room == l.budget.heavy && l.disturbs() {
			h.room.rest(h, restTimes*time.Since(h.since))
		}
		h.room.release(h)
	}
	l.held = 0
}

// disturbs reports whether other callers have sent ordinary requests lately.
func (l *lease) disturbs() bool {
	return l.budget.light.usedByOthers(l.by, time.Now().Add(-lately))
}

// pace waits after n bytes of a body of more than pacedBody, which the lease holds room for, and returns whether the request must end.
func (l *lease) pace(n int) (ended bool) {
	if !l.disturbs() {
		runtime.Gosched()
		return false
	}
	h := &l.holds[0]
	over := make(chan struct{})
	if !l.wait(sync.OnceFunc(func() { close(over) })) {
		return true
	}
	select {
	case <-time.After(h.room.rest(h, time.Duration(n)*time.Second/pace)):
	case <-over:
	}
	_, ended = l.proceed()
	return ended
}

type leaseKey struct{}

// ReserveMemory adds bytes to the memory that the request with this context holds until its handler returns, such as the
// memory for decoding its body. Call it once, before allocating that memory. It waits for room as reading a body does;
// the error wraps [ErrBusy]. A request that reserves more than there is waits until no other request holds any.
//
// At most eight requests for each processor, or 16 if those are more, hold such memory at a time. Requests that reserve more than 4 MiB wait for each other: fewer of
// them than there are processors hold memory at a time. While other callers send smaller requests, a caller gets such memory again only after
// 30 times as long as it has held it, but at most after one second.
func ReserveMemory(ctx context.Context, bytes int64) error {
	l, _ := ctx.Value(leaseKey{}).(*lease)
	switch {
	case l == nil: // a request without a body
		return nil
	case bytes <= lightWork:
		return l.take(ctx, l.budget.light, max(bytes, l.budget.leastLight))
	}
	return l.take(ctx, l.budget.heavy, max(bytes, l.budget.leastHeavy))
}

// Wait calls wait, which waits for another server. Meanwhile the request holds no memory that it got from [ReserveMemory], so
// others can be decoded and evaluated, however slow that server is. keeps is the memory of what the request has decoded:
// it counts in a room of its own, of 16 MiB for all requests. A request that finds no room there keeps what it holds.
// After wait, the request waits for room as in ReserveMemory; the error wraps [ErrBusy].
func Wait(ctx context.Context, keeps int64, wait func()) error {
	if l, _ := ctx.Value(leaseKey{}).(*lease); l != nil {
		return l.waitAside(ctx, keeps, wait)
	}
	wait()
	return nil
}

func (l *lease) waitAside(ctx context.Context, keeps int64, wait func()) error {
	b := l.budget
	var made *hold
	if l.held > 0 && (l.holds[l.held-1].room == b.light || l.holds[l.held-1].room == b.heavy) {
		made = &l.holds[l.held-1]
	}
	l.kept = hold{amount: keeps, holder: l}
	if made == nil || keeps > waitRoom || !b.waiting.takeFree(&l.kept, l.by) {
		wait()
		return nil
	}
	b.reserved.Add(float64(keeps))
	defer func() {
		b.waiting.release(&l.kept)
		b.reserved.Sub(float64(keeps))
	}()
	from, amount := made.room, made.amount
	from.release(made)
	b.reserved.Sub(float64(amount))
	*made = hold{}
	l.held--
	wait()
	return l.take(ctx, from, amount)
}
