package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
)

// errBusy means that other requests hold the memory that a request needs, and did not release
// enough in time.
var errBusy = errors.New("server busy")

// ReserveMemory adds bytes to the memory that the request with this context holds until its handler
// returns, such as the memory for decoding its body. Call it once, before allocating that memory.
// It waits as reading a body does; the error begins with "server busy". A request that reserves more
// than there is waits until no other large request holds any.
func ReserveMemory(ctx context.Context, bytes int64) error {
	l, _ := ctx.Value(leaseKey{}).(*lease)
	switch {
	case l == nil: // a request without a body
		return nil
	case bytes <= lightWork:
		return l.take(ctx, l.memory.light, max(bytes, leastWork))
	}
	return l.take(ctx, l.memory.heavy, bytes)
}

type leaseKey struct{}

const (
	// ordinaryBody is the size up to which a body waits for no other. A pod of 32 KiB and 64 KiB of
	// names fit.
	ordinaryBody = 96 << 10

	// Requests that reserve at most lightWork share one semaphore, and never wait for those that
	// reserve more, which share another one. Each has workBytes.
	lightWork = 4 << 20
	workBytes = 64 << 20

	// leastWork is what a request takes at least, so that it also bounds how many are evaluated at
	// a time.
	leastWork = 1 << 20
)

// memory bounds the memory of all requests together. What always holds:
//
//   - The bodies of more than ordinaryBody take at most the bytes of bodies. There are at most as
//     many smaller ones as connections.
//   - A request takes memory for its body before that for decoding it, and waits for no memory
//     while it holds both. So requests cannot deadlock.
//   - Requests that wait for the same semaphore are served in the order in which they came.
type memory struct {
	bodies, light, heavy limit
	patience             time.Duration
	reserved             prometheus.Gauge
}

func newMemory(bodies int64, patience time.Duration, reserved prometheus.Gauge) *memory {
	return &memory{
		bodies:   newLimit("bytes for large request bodies", bodies),
		light:    newLimit("bytes for decoding requests of ordinary size", workBytes),
		heavy:    newLimit("bytes for decoding large requests", workBytes),
		patience: patience,
		reserved: reserved,
	}
}

// A limit is an amount of memory that requests share.
type limit struct {
	*semaphore.Weighted
	use  string // for errors
	size int64
}

func newLimit(use string, size int64) limit { return limit{semaphore.NewWeighted(size), use, size} }

// A lease is what one request holds. One goroutine at a time uses it.
type lease struct {
	memory   *memory
	releases []func()
}

// take waits until it holds so much of the limit, or all of it if that is less.
func (l *lease) take(ctx context.Context, of limit, bytes int64) error {
	bytes = min(bytes, of.size)
	if !of.TryAcquire(bytes) { // usually there is enough, and no timer is needed
		waiting, cancel := context.WithTimeout(ctx, l.memory.patience)
		defer cancel()
		if of.Acquire(waiting, bytes) != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("%w: requests hold the %d %s, and %d more did not become free within %s",
				errBusy, of.size, of.use, bytes, l.memory.patience)
		}
	}
	l.memory.reserved.Add(float64(bytes))
	l.releases = append(l.releases, func() {
		l.memory.reserved.Sub(float64(bytes))
		of.Release(bytes)
	})
	return nil
}

// release releases everything.
func (l *lease) release() {
	for _, release := range l.releases {
		release()
	}
}
