package server

import (
	"net/http"
	"time"
)

// A pace is the required rate of bodies and responses.
type pace struct {
	rate  int64         // bytes a second
	grace time.Duration // how far a client may be behind
}

// due returns how long a transfer of this many bytes may take.
func (p pace) due(bytes int64) time.Duration {
	return time.Duration(float64(bytes) / float64(p.rate) * float64(time.Second))
}

// A transfer is a body that is being received, or a response that is being sent. It counts the time that the client
// takes, and not the time that the server takes between two parts. One goroutine at a time uses it.
type transfer struct {
	pace        pace
	end         time.Time             // when it must end, at any rate
	setDeadline func(time.Time) error // of the next part
	conn        *conn                 // nil: unknown, or shared with other requests

	moved int64
	took  time.Duration
	since time.Time // start of the current part
}

// begin is called before reading or writing a part.
func (t *transfer) begin() {
	t.since = time.Now()
	deadline := t.since.Add(t.pace.grace + t.pace.due(t.moved) - t.took)
	if deadline.After(t.end) {
		deadline = t.end
	}
	_ = t.setDeadline(deadline) // an error means that the connection is gone, and the part will fail
	if t.conn != nil {
		t.conn.moved.Store(t.moved)
		t.conn.owes.Store(t.since.Add(-t.took).UnixNano())
	}
}

// moves is called after reading or writing a part.
func (t *transfer) moves(bytes int) {
	t.took += time.Since(t.since)
	t.moved += int64(bytes)
	if t.conn != nil {
		t.conn.owes.Store(0)
	}
}

// behind returns how much longer than allowed a connection has waited for its client: to send a request, or to continue
// with the current body or response. It is negative while a client is fast enough, and while the server has to act.
// listener.mu must be held.
func (c *conn) behind(now time.Time, p pace) time.Duration {
	if c.state == http.StateNew {
		return now.Sub(c.since)
	}
	owes := c.owes.Load()
	if owes == 0 {
		return -1
	}
	return now.Sub(time.Unix(0, owes)) - p.due(c.moved.Load())
}
