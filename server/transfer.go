package server

import (
	"net/http"
	"time"
)

// A pace is how fast bodies and answers must be transferred.
type pace struct {
	rate  int64         // bytes a second
	grace time.Duration // that a client may be behind
}

// due is how long so many bytes may take.
func (p pace) due(bytes int64) time.Duration {
	return time.Duration(float64(bytes) / float64(p.rate) * float64(time.Second))
}

// A transfer is a body that is received, or an answer that is sent. It counts the time that the client takes, and not the
// time that the server takes between two parts. It is used by one goroutine at a time.
type transfer struct {
	pace        pace
	end         time.Time             // when it must be over, however fast it is
	setDeadline func(time.Time) error // of the next part
	conn        *conn                 // nil: not known, or shared with other requests

	moved int64
	took  time.Duration
	since time.Time // of the present part
}

// begin is called before a part is read or written.
func (t *transfer) begin() {
	t.since = time.Now()
	deadline := t.since.Add(t.pace.grace + t.pace.due(t.moved) - t.took)
	if deadline.After(t.end) {
		deadline = t.end
	}
	_ = t.setDeadline(deadline) // otherwise the connection is gone, which the part will show
	if t.conn != nil {
		t.conn.moved.Store(t.moved)
		t.conn.owes.Store(t.since.Add(-t.took).UnixNano())
	}
}

// moves is called after it.
func (t *transfer) moves(bytes int) {
	t.took += time.Since(t.since)
	t.moved += int64(bytes)
	if t.conn != nil {
		t.conn.owes.Store(0)
	}
}

// behind is how much longer than it should a connection has waited for its client: to make a request, or to go on with the
// body or the answer at hand. It is negative while a client is fast enough, and when the server has to do something.
// listener.mu is held.
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
