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
	// defaultAcceptGrace is how long the listener keeps accepting connections that the kernel has
	// completed, before it closes.
	defaultAcceptGrace = 50 * time.Millisecond

	// defaultHurryGrace is how long an open connection may wait for a request during shutdown.
	defaultHurryGrace = 500 * time.Millisecond
)

// A session is the state of one connection across its requests.
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

// A listener bounds the open connections and tracks their state. What always holds: there are at
// most size connections, and one that serves a request is closed only by the http.Server.
type listener struct {
	*net.TCPListener
	size        int
	acceptGrace time.Duration
	hurryGrace  time.Duration
	metrics     *metrics // nil: not counted

	mu      sync.Mutex
	conns   map[*conn]struct{} // open ones
	hurried bool               // hurry was called
	empty   chan struct{}      // created by hurry, closed when no connection is left
}

// A conn is one connection. listener.mu guards its fields.
type conn struct {
	*net.TCPConn
	listener *listener

	state http.ConnState
	since time.Time // in this state
	by    time.Time // when waiting for a request ends; zero: the http.Server decides
}

func newListener(l *net.TCPListener, size int, m *metrics) *listener {
	return &listener{
		TCPListener: l, size: size, acceptGrace: defaultAcceptGrace, hurryGrace: defaultHurryGrace,
		metrics: m, conns: map[*conn]struct{}{},
	}
}

// Accept returns the next connection. If there are too many, it closes the one that has waited
// longest for a request: first those that wait for their first one. If all serve requests, it
// closes the new connection.
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
		if l.add(c) {
			return c, nil
		}
		_ = raw.Close()
	}
}

// add adds the connection. It returns false if there is no place for it.
func (l *listener) add(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= l.size {
		evicted := l.longestQuiet()
		if evicted == nil {
			l.count(connRefused)
			return false
		}
		l.count(connEvicted) // before its client can notice
		l.drop(evicted)
		// Not by a tls.Conn, whose Close would first send an alert.
		_ = evicted.TCPConn.Close()
	}
	l.count(connAccepted)
	l.conns[c] = struct{}{}
	if l.metrics != nil {
		l.metrics.openConns.Inc()
	}
	return true
}

// longestQuiet returns the connection that is closed for another one, or nil.
func (l *listener) longestQuiet() (longest *conn) {
	for c := range l.conns {
		if c.quiet() && (longest == nil || c.state < longest.state ||
			c.state == longest.state && c.since.Before(longest.since)) {
			longest = c
		}
	}
	return longest
}

func (l *listener) count(outcome string) {
	if l.metrics != nil {
		l.metrics.connections.WithLabelValues(outcome).Inc()
	}
}

// drop removes a connection, if it has not been removed. listener.mu must be held.
func (l *listener) drop(c *conn) {
	if _, open := l.conns[c]; !open {
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

// finish makes Accept continue for acceptGrace and then fail with [net.ErrClosed], so that
// connections that are established for their clients are not reset.
func (l *listener) finish() { _ = l.SetDeadline(time.Now().Add(l.acceptGrace)) }

// hurry gives connections without a request hurryGrace to send one. It closes the returned channel
// when no connection is left. Call it once, after Accept has failed.
//
// A deadline, unlike closing, does not affect a connection whose request has arrived but has not
// been read. A connection whose request comes in time becomes active, and its deadline is removed
// (see observe).
func (l *listener) hurry() (empty <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hurried = true
	l.empty = make(chan struct{})
	if len(l.conns) == 0 {
		close(l.empty)
	}
	for c := range l.conns {
		if c.quiet() {
			c.hurry()
		}
	}
	return l.empty
}

// observe is an http.Server's ConnState.
func (l *listener) observe(nc net.Conn, state http.ConnState) {
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	c := nc.(*conn)
	l.mu.Lock()
	defer l.mu.Unlock()
	c.state, c.since = state, time.Now()
	switch {
	case state == http.StateActive && !c.by.IsZero():
		c.by = time.Time{}
		_ = c.TCPConn.SetReadDeadline(c.by)
	case l.hurried && c.quiet():
		c.hurry()
	}
}

// quiet reports whether the connection has no request. listener.mu must be held.
func (c *conn) quiet() bool { return c.state == http.StateNew || c.state == http.StateIdle }

// hurry is that of a listener. listener.mu must be held.
func (c *conn) hurry() {
	c.by = time.Now().Add(c.listener.hurryGrace)
	_ = c.TCPConn.SetReadDeadline(c.by)
}

// SetReadDeadline is called by the http.Server. After hurry, it cannot extend the time of the
// connection.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if !c.by.IsZero() && (t.IsZero() || t.After(c.by)) {
		t = c.by
	}
	return c.TCPConn.SetReadDeadline(t)
}

// Close closes the connection. It may be called several times.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.drop(c)
	c.listener.mu.Unlock()
	return c.TCPConn.Close()
}
