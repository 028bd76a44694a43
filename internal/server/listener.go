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

	// hurryInterval is the time between two calls of hurry.
	hurryInterval = 20 * time.Millisecond
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
	keepIdle    bool // see Accept
	acceptGrace time.Duration
	hurryGrace  time.Duration
	metrics     *metrics

	mu    sync.Mutex
	conns map[*conn]struct{} // open ones
}

// A conn is one connection. listener.mu guards its fields.
type conn struct {
	*net.TCPConn
	listener *listener

	state http.ConnState
	since time.Time // in this state
}

func newListener(l *net.TCPListener, size int, keepIdle bool, m *metrics) *listener {
	return &listener{
		TCPListener: l, size: size, keepIdle: keepIdle, metrics: m,
		acceptGrace: defaultAcceptGrace, hurryGrace: defaultHurryGrace, conns: map[*conn]struct{}{},
	}
}

// Accept returns the next connection. If there are too many, it closes the one that has waited
// longest for a request; if idle ones are kept, first those that wait for their first request. If
// all serve requests, it closes the new connection.
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
	l.metrics.openConns.Inc()
	return true
}

// longestQuiet returns the connection that is closed for another one, or nil.
func (l *listener) longestQuiet() (longest *conn) {
	for c := range l.conns {
		switch {
		case !c.quiet():
		case longest == nil, l.keepIdle && c.state < longest.state,
			(!l.keepIdle || c.state == longest.state) && c.since.Before(longest.since):
			longest = c
		}
	}
	return longest
}

func (l *listener) count(outcome string) { l.metrics.connections.WithLabelValues(outcome).Inc() }

// drop removes a connection, if it has not been removed. listener.mu must be held.
func (l *listener) drop(c *conn) {
	if _, open := l.conns[c]; !open {
		return
	}
	delete(l.conns, c)
	l.metrics.openConns.Dec()
}

// finish makes Accept continue for acceptGrace and then fail with [net.ErrClosed], so that
// connections that are established for their clients are not reset.
func (l *listener) finish() { _ = l.SetDeadline(time.Now().Add(l.acceptGrace)) }

// hurry gives connections without a request hurryGrace from then on to send one, or from when they
// became quiet. Call it again and again, until it returns true: no connection is left.
//
// A deadline, unlike closing, does not affect a connection whose request has arrived but has not
// been read. The http.Server removes it when it has read the header, and replaces it when the
// connection becomes idle.
func (l *listener) hurry(then time.Time) (empty bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if c.quiet() {
			if c.since.Before(then) {
				c.since = then
			}
			_ = c.SetReadDeadline(c.since.Add(l.hurryGrace))
		}
	}
	return len(l.conns) == 0
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
}

// quiet reports whether the connection has no request. listener.mu must be held.
func (c *conn) quiet() bool { return c.state == http.StateNew || c.state == http.StateIdle }

// Close closes the connection. It may be called several times.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.drop(c)
	c.listener.mu.Unlock()
	return c.TCPConn.Close()
}
