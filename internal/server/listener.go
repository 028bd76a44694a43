package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// defaultAcceptGrace is how long the listener keeps accepting connections that the kernel has completed, before it
	// closes.
	defaultAcceptGrace = 50 * time.Millisecond

	// defaultHurryGrace is how long an open connection may wait for a request during shutdown.
	defaultHurryGrace = 500 * time.Millisecond
)

// A session is the state of one connection across its requests.
type session struct {
	began   time.Time
	conn    *conn
	verdict atomic.Pointer[verdict]
}

type sessionKey struct{}

// withSession is an http.Server's ConnContext.
func withSession(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, sessionKey{}, &session{began: time.Now(), conn: rawConn(c)})
}

func sessionOf(ctx context.Context) *session { return ctx.Value(sessionKey{}).(*session) }

// A listener bounds the open connections and tracks their state.
type listener struct {
	*net.TCPListener
	max         int
	pace        pace
	acceptGrace time.Duration
	hurryGrace  time.Duration
	metrics     *metrics // nil: not counted

	mu      sync.Mutex
	conns   map[*conn]struct{}
	hurried bool          // hurry was called
	empty   chan struct{} // created by hurry, closed when no connection is left
}

// A conn is one connection. listener.mu guards its fields, except the atomic ones.
type conn struct {
	*net.TCPConn
	listener *listener

	// Of the current body or response: its start, in Unix nanoseconds and moved forward by the time that the server
	// took meanwhile, 0 while the server has to act; and the bytes moved before the current part.
	owes, moved atomic.Int64

	tls   *tls.Conn // nil without TLS
	state http.ConnState
	since time.Time // in this state
	by    time.Time // when waiting for a request ends; zero: the http.Server decides
}

func newListener(l *net.TCPListener, maxConns int, p pace, m *metrics) *listener {
	return &listener{
		TCPListener: l, max: maxConns, pace: p, acceptGrace: defaultAcceptGrace, hurryGrace: defaultHurryGrace, metrics: m,
		conns: map[*conn]struct{}{},
	}
}

// Accept returns the next connection. At the limit, it closes a connection to make room, or the new one: see add.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.AcceptTCP()
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				// finish was called. A deadline error would look temporary.
				return nil, net.ErrClosed
			}
			return nil, err
		}
		c := &conn{TCPConn: raw, listener: l, state: http.StateNew, since: time.Now()}
		victim, outcome := l.add(c)
		l.count(outcome) // before the victim's client can notice
		if victim != nil {
			// Not the tls.Conn, whose Close would first send an alert.
			_ = victim.Close()
		}
		if victim != c {
			return c, nil
		}
	}
}

// add adds the connection and returns the one to close for it: none, or the one whose client is furthest behind with
// its first request, a body or a response, or the one that has waited longest for another request, or the new one.
func (l *listener) add(c *conn) (victim *conn, outcome string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	outcome = connAccepted
	if len(l.conns) >= l.max {
		if victim = l.slowest(-1, true); victim == nil {
			victim = l.longestIdle()
		}
		if victim == nil {
			return c, connRefused
		}
		l.drop(victim)
		outcome = connEvicted
	}
	l.conns[c] = struct{}{}
	if l.metrics != nil {
		l.metrics.openConns.Inc()
	}
	return victim, outcome
}

func (l *listener) count(outcome string) {
	if l.metrics == nil {
		return
	}
	l.metrics.connections.WithLabelValues(outcome).Inc()
	if outcome == connEvicted {
		l.metrics.connections.WithLabelValues(connAccepted).Inc()
	}
}

// drop removes a connection. l.mu must be held.
func (l *listener) drop(c *conn) {
	if _, ok := l.conns[c]; !ok {
		return
	}
	delete(l.conns, c)
	if l.metrics != nil {
		l.metrics.openConns.Dec()
	}
	if l.hurried && len(l.conns) == 0 {
		close(l.empty)
	}
}

// slowest returns the connection that is furthest behind, by more than least; nil if there is none. fresh is whether
// connections without a request so far count. l.mu must be held.
func (l *listener) slowest(least time.Duration, fresh bool) (found *conn) {
	now := time.Now()
	for c := range l.conns {
		if !fresh && c.state == http.StateNew {
			continue
		}
		if behind := c.behind(now, l.pace); behind > least {
			found, least = c, behind
		}
	}
	return found
}

// longestIdle returns the connection that has waited longest for another request; nil if none waits. l.mu must be held.
func (l *listener) longestIdle() (found *conn) {
	for c := range l.conns {
		if c.state == http.StateIdle && (found == nil || c.since.Before(found.since)) {
			found = c
		}
	}
	return found
}

// evictSlowest closes the connection with the slowest body or response that is behind by more than least, so that its
// room becomes free.
func (l *listener) evictSlowest(least time.Duration) {
	l.mu.Lock()
	victim := l.slowest(least, false)
	if victim != nil {
		l.drop(victim)
	}
	l.mu.Unlock()
	if victim != nil {
		if l.metrics != nil {
			l.metrics.connections.WithLabelValues(connEvicted).Inc()
		}
		_ = victim.TCPConn.Close() // not the tls.Conn, see Accept
	}
}

// waits reports whether the connection has no request. listener.mu must be held.
func (c *conn) waits() bool { return c.state == http.StateNew || c.state == http.StateIdle }

func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.drop(c)
	c.listener.mu.Unlock()
	return c.TCPConn.Close()
}

// rawConn returns what Accept returned, for a connection of the http.Server.
func rawConn(nc net.Conn) *conn {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	c, _ := nc.(*conn)
	return c
}

// observe is an http.Server's ConnState.
func (l *listener) observe(nc net.Conn, state http.ConnState) {
	c := rawConn(nc)
	if c == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.state, c.since = state, time.Now()
	c.tls, _ = nc.(*tls.Conn)
	switch {
	case state == http.StateActive && !c.by.IsZero():
		c.by = time.Time{}
		_ = c.TCPConn.SetReadDeadline(c.by)
	case l.hurried && c.waits():
		c.hurry()
	}
}

// SetReadDeadline is called by the http.Server. After hurry, it cannot extend the time of the connection.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if !c.by.IsZero() && (t.IsZero() || t.After(c.by)) {
		t = c.by
	}
	return c.TCPConn.SetReadDeadline(t)
}

// finish makes Accept continue for acceptGrace and then fail with [net.ErrClosed], so that connections that are
// established for their clients are not reset.
func (l *listener) finish() { _ = l.SetDeadline(time.Now().Add(l.acceptGrace)) }

// hurry gives connections without a request hurryGrace to send one. It closes the returned channel when no connection
// is left. Call it once, after Accept has failed.
//
// A deadline, unlike closing, does not affect a connection whose request has arrived but has not been read. A
// connection whose request comes in time becomes active, and its deadline is removed (see observe).
func (l *listener) hurry() (empty <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hurried = true
	l.empty = make(chan struct{})
	if len(l.conns) == 0 {
		close(l.empty)
	}
	for c := range l.conns {
		if c.waits() {
			c.hurry()
		}
	}
	return l.empty
}

func (c *conn) hurry() {
	c.by = time.Now().Add(c.listener.hurryGrace)
	_ = c.TCPConn.SetReadDeadline(c.by)
}

// idleTLS returns the TLS connections that have served a request and wait for another, by what Accept returned.
func (l *listener) idleTLS() map[*conn]*tls.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	idle := map[*conn]*tls.Conn{}
	for c := range l.conns {
		if c.tls != nil && c.state == http.StateIdle {
			idle[c] = c.tls
		}
	}
	return idle
}
