package server

import (
	"errors"
	"time"
)

// deadlineInterval is how long after its deadline a read or write may fail.
const deadlineInterval = 50 * time.Millisecond

// A deadline is the time at which the reads or the writes of a connection fail. The http.Server and the limits of bodies and
// answers set several per request, and few of them pass. Each deadline of a TCPConn is a timer, and the runtime wakes a thread for
// a timer that is earlier than the others: this takes about 5 % of the processor time of a call. So a TCPConn gets a deadline only
// when the deadline has passed. listener.mu guards the fields.
type deadline struct {
	at     time.Time             // zero: none
	passed bool                  // the deadline of the TCPConn is in the past
	tell   func(time.Time) error // sets the deadline of the TCPConn
}

// longAgo is a deadline in the past.
var longAgo = time.Unix(1, 0)

func (d *deadline) set(at time.Time) error {
	d.at = at
	if !at.IsZero() && !at.After(time.Now()) {
		d.passed = true
		return d.tell(at)
	}
	if d.passed {
		d.passed = false
		return d.tell(time.Time{})
	}
	return nil
}

// expire ends reads or writes if the deadline has passed.
func (d *deadline) expire(now time.Time) {
	if !d.passed && !d.at.IsZero() && !d.at.After(now) {
		d.passed = true
		_ = d.tell(longAgo) // fails if the connection is closed
	}
}

// SetReadDeadline is called by the http.Server. After hurry, it cannot extend the time of the connection.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if !c.by.IsZero() && (t.IsZero() || t.After(c.by)) {
		t = c.by
	}
	return c.reads.set(t)
}

// SetWriteDeadline is called by the http.Server.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	return c.writes.set(t)
}

// SetDeadline sets both.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// expire ends reads and writes whose deadlines have passed, every deadlineInterval while there are connections.
func (l *listener) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for c := range l.conns {
		c.reads.expire(now)
		c.writes.expire(now)
	}
	if l.expires = len(l.conns) > 0; l.expires {
		time.AfterFunc(deadlineInterval, l.expire)
	}
}
