package ledger

import (
	"sync"
	"time"
)

// dateStep is the precision of the date of an answer.
const dateStep = time.Second

// Clock tells the API server's time, whatever this process's own clock says: replicas whose clocks differ write times into
// one ledger. It learns from the dates of the API server's answers, and knows two bounds: Earliest is not later than the API
// server's time, and Latest not earlier. Before the first answer, both are this process's own time. Its methods may be
// called concurrently.
type Clock struct {
	now func() time.Time

	mu               sync.Mutex
	at               time.Time // by our own clock: when the bounds were these; zero before the first answer
	earliest, latest time.Time
}

// NewClock returns a Clock that measures how long ago something was by now, which is time.Now if nil.
func NewClock(now func() time.Time) *Clock {
	if now == nil {
		now = time.Now
	}
	return &Clock{now: now}
}

// Observe takes the date of an answer to a request that was sent and answered at these times, by our own clock.
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
		if earliest.After(latest) { // one of the clocks was set
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

// since is the bound, moved on to now.
func (c *Clock) since(bound time.Time) time.Time {
	now := c.now()
	if c.at.IsZero() {
		return now
	}
	return bound.Add(now.Sub(c.at))
}
