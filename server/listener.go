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
	// defaultAcceptGrace is how long the listener, before it closes, takes in connections that the kernel has completed for it.
	defaultAcceptGrace = 50 * time.Millisecond

	// defaultHurryGrace is how long an open connection may wait for a request at the end.
	defaultHurryGrace = 500 * time.Millisecond
)

// A session is what is known of one connection over its requests.
type session struct {
	began   time.Time
	verdict atomic.Pointer[verdict]
}

type sessionKey struct{}

// withSession is an http.Server's ConnContext.
func withSession(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, sessionKey{}, &session{began: time.Now()})
}

func sessionOf(ctx context.Context) *session { return ctx.Value(sessionKey{}).(*session) }

// A listener bounds the open connections and knows what each of them does.
type listener struct {
	*net.TCPListener
	max         int
	acceptGrace time.Duration
	hurryGrace  time.Duration
	metrics     *metrics // nil: not counted

	mu      sync.Mutex
	conns   map[*conn]struct{}
	hurried bool          // by hurry
	empty   chan struct{} // made by hurry, closed when no connection is left
}

// A conn is one connection. Its fields are guarded by listener.mu.
type conn struct {
	*net.TCPConn
	listener *listener
	tls      *tls.Conn // nil without TLS
	state    http.ConnState
	since    time.Time // in this state
	by       time.Time // when to give up waiting for a request; zero: when the http.Server says
}

func newListener(l *net.TCPListener, maxConns int, m *metrics) *listener {
	return &listener{
		TCPListener: l, max: maxConns, acceptGrace: defaultAcceptGrace, hurryGrace: defaultHurryGrace, metrics: m,
		conns: map[*conn]struct{}{},
	}
}

// Accept returns the next connection. When there are too many, it closes one that waits for a request to make room, or
// the new one.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.AcceptTCP()
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				// Set by finish. A deadline would pass for an error that may go away.
				return nil, net.ErrClosed
			}
			return nil, err
		}
		c := &conn{TCPConn: raw, listener: l, state: http.StateNew, since: time.Now()}
		victim, outcome := l.add(c)
		l.count(outcome) // before the victim's client can know
		if victim != nil {
			// Not the tls.Conn, whose Close would first try to say goodbye.
			_ = victim.Close()
		}
		if victim != c {
			return c, nil
		}
	}
}

// add takes the connection in and returns the one to close for it: none, another, or itself.
func (l *listener) add(c *conn) (victim *conn, outcome string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	outcome = connAccepted
	if len(l.conns) >= l.max {
		for other := range l.conns {
			if other.waits() && (victim == nil || other.waitsWorse(victim)) {
				victim = other
			}
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

// drop forgets a connection. l.mu is held.
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

// waits reports whether the connection has no request. listener.mu is held.
func (c *conn) waits() bool { return c.state == http.StateNew || c.state == http.StateIdle }

// waitsWorse orders waiting connections by how little is lost with them. listener.mu is held.
func (c *conn) waitsWorse(than *conn) bool {
	if c.state != than.state {
		return c.state == http.StateNew
	}
	return c.since.Before(than.since)
}

func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.drop(c)
	c.listener.mu.Unlock()
	return c.TCPConn.Close()
}

// rawConn returns what Accept returned for a connection as the http.Server knows it.
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

// SetReadDeadline is called by the http.Server. It cannot extend the time of a connection that was told to hurry.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if !c.by.IsZero() && (t.IsZero() || t.After(c.by)) {
		t = c.by
	}
	return c.TCPConn.SetReadDeadline(t)
}

// finish makes Accept serve on for acceptGrace and then fail with [net.ErrClosed], so that connections whose clients
// already count as connected are not reset.
func (l *listener) finish() { _ = l.SetDeadline(time.Now().Add(l.acceptGrace)) }

// hurry gives connections that wait for a request hurryGrace to send one. The returned channel is closed when no
// connection is left. Call it once, after Accept has failed.
//
// A deadline, unlike a close, leaves those alone whose request has arrived and is only not looked at yet. One whose
// request comes in time becomes active, and the deadline is taken back (see observe).
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
