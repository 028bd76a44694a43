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
	address string // of the client, without the port
	conn    *conn
	verdict atomic.Pointer[verdict]
}

type sessionKey struct{}

// withSession is an http.Server's ConnContext.
func withSession(ctx context.Context, c net.Conn) context.Context {
	conn := rawConn(c)
	return context.WithValue(ctx, sessionKey{}, &session{began: time.Now(), address: conn.address(), conn: conn})
}

func sessionOf(ctx context.Context) *session { return ctx.Value(sessionKey{}).(*session) }

// A listener bounds the open connections and tracks their state.
type listener struct {
	*net.TCPListener
	room        *room // of open connections
	turns       *room // of handshakes; nil without TLS
	turnTimeout time.Duration
	acceptGrace time.Duration
	hurryGrace  time.Duration
	metrics     *metrics // nil: not counted

	mu      sync.Mutex
	conns   map[*conn]struct{}
	hurried bool          // hurry was called
	empty   chan struct{} // created by hurry, closed when no connection is left
}

// A conn is one connection. listener.mu guards its fields, except the atomic ones and those of its turn, which the goroutine that reads uses.
type conn struct {
	*net.TCPConn
	listener *listener

	closing sync.Once
	hold    hold  // of the listener's room
	turns   *room // until the first request, with TLS
	turn    hold  // of turns
	hasTurn bool

	request atomic.Pointer[lease] // the current request; nil: none, or the connection has several

	tls   *tls.Conn // nil without TLS
	state http.ConnState
	since time.Time // in this state
	by    time.Time // when waiting for a request ends; zero: the http.Server decides
}

func newListener(l *net.TCPListener, maxConns int, m *metrics) *listener {
	return &listener{
		TCPListener: l, room: newRoom("connections", int64(maxConns)), acceptGrace: defaultAcceptGrace, hurryGrace: defaultHurryGrace, metrics: m,
		conns: map[*conn]struct{}{},
	}
}

// Accept returns the next connection. If there is no room for it, it closes the connections that yield, or the new one.
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
		c := &conn{TCPConn: raw, listener: l, turns: l.turns, state: http.StateNew, since: time.Now()}
		if l.add(c) {
			return c, nil
		}
		_ = raw.Close()
	}
}

// add adds the connection, and closes those that yield to it. It returns false if there is no room.
func (l *listener) add(c *conn) bool {
	c.hold = hold{amount: 1, holder: c}
	for {
		ok, yield := l.room.takeOrYield(&c.hold, c.address())
		if ok {
			break
		}
		if len(yield) == 0 {
			l.count(connRefused)
			return false
		}
		for _, holder := range yield {
			l.count(connEvicted) // before its client can notice
			holder.end()
		}
	}
	l.count(connAccepted)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = struct{}{}
	if l.metrics != nil {
		l.metrics.openConns.Inc()
	}
	return true
}

func (l *listener) count(outcome string) {
	if l.metrics != nil {
		l.metrics.connections.WithLabelValues(outcome).Inc()
	}
}

// drop removes a connection. Call it once.
func (l *listener) drop(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	if l.metrics != nil {
		l.metrics.openConns.Dec()
	}
	if l.hurried && len(l.conns) == 0 {
		close(l.empty)
	}
}

// address returns that of the client, without the port.
func (c *conn) address() string {
	if remote, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return remote.IP.String()
	}
	return ""
}

// quiet reports whether the connection has no request. listener.mu must be held.
func (c *conn) quiet() bool { return c.state == http.StateNew || c.state == http.StateIdle }

// Connections that wait for their client yield in this order: those whose client owes the rest of a request or does not read its response,
// those whose client does so only for a moment, those that have served a request and wait for another. Each constant is longer than any
// connection waits, so that it puts all of its kind before all of the next.
const (
	owing      = 48 * time.Hour
	owingBrief = 24 * time.Hour
)

// brief is how long the rest of a request may be on its way. A client that began a request must not lose its connection to
// callers that open connections faster than a body arrives.
const brief = time.Second

// waits makes a connection a holder.
func (c *conn) waits(now time.Time) time.Duration {
	c.listener.mu.Lock()
	state, since := c.state, c.since
	c.listener.mu.Unlock()
	switch {
	case state == http.StateNew:
		return owing + now.Sub(since)
	case state == http.StateIdle:
		return now.Sub(since)
	}
	if l := c.request.Load(); l != nil {
		switch waited := l.waits(now); {
		case waited >= brief:
			return owing + waited
		case waited >= 0:
			return owingBrief + waited
		}
	}
	return -1
}

// end makes a connection a holder. It closes no tls.Conn, whose Close would first send an alert.
func (c *conn) end() { _ = c.Close() }

// Close closes the connection, once. When it returns, the connection holds no room, also if another goroutine has begun to close it.
func (c *conn) Close() error {
	err := net.ErrClosed
	c.closing.Do(func() {
		c.listener.drop(c)
		err = c.TCPConn.Close()
		c.listener.room.release(&c.hold)
	})
	return err
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
	c.speaks(state)
	l.mu.Lock()
	defer l.mu.Unlock()
	c.state, c.since = state, time.Now()
	c.tls, _ = nc.(*tls.Conn)
	switch {
	case state == http.StateActive && !c.by.IsZero():
		c.by = time.Time{}
		_ = c.TCPConn.SetReadDeadline(c.by)
	case l.hurried && c.quiet():
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
		if c.quiet() {
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
