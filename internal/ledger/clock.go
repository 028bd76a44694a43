package ledger

import (
	"sync"
	"time"
)

// dateStep is the precision of the date of a response.
const dateStep = time.Second

// Clock estimates the API server's time, independent of this process's own clock: replicas whose
// clocks differ write times into one ledger. It reads the dates of the API server's responses. What
// always holds after the first response, as long as the own clock runs evenly: Earliest <= the API
// server's time <= Latest. Before, both are this process's own time. Its methods are safe for
// concurrent use.
type Clock struct {
	now func() time.Time

	mu               sync.Mutex
	at               time.Time // when the bounds were set, by our own clock; zero before the first response
	earliest, latest time.Time
}

// NewClock returns a Clock that measures elapsed time with now, which is time.Now if nil.
func NewClock(now func() time.Time) *Clock {
	if now == nil {
		now = time.Now
	}
	return &Clock{now: now}
}

// Observe updates the bounds with the date of a response, and when the request was sent and the
// response received, by our own clock.
func (c *Clock) Observe(date, sent, received time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	earliest, latest := date, date.Add(dateStep+received.Sub(sent))
	if !c.at.IsZero() {
		since := received.Sub(c.at)
		if known := c.earliest.Add(since); known.After(earliest) {
			earliest = known
		}
		if known := c.latest.Add(since); known.Before(latest) {
			latest = known
		}
		if earliest.After(latest) { // one of the clocks was changed
			earliest, latest = date, date.Add(dateStep+received.Sub(sent))
		}
	}
	c.at, c.earliest, c.latest = received, earliest, latest
}

// Earliest is a time not later than the API server's.
func (c *Clock) Earliest() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since(c.earliest)
}

// Latest is a time not earlier than the API server's.
func (c *Clock) Latest() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since(c.latest)
}

// since returns the bound, advanced to now.
func (c *Clock) since(bound time.Time) time.Time {
	now := c.now()
	if c.at.IsZero() {
		return now
	}
	return bound.Add(now.Sub(c.at))
}
