package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// acceptGrace is how long the server keeps accepting connections that the kernel has completed,
	// before it closes the listener: closing resets them.
	acceptGrace = 50 * time.Millisecond

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

// connections bounds the open connections of an http.Server. What always holds: there are at most
// size connections, and one that serves a request is closed only by the http.Server.
type connections struct {
	size       int
	keepIdle   bool // see admit
	hurryGrace time.Duration
	outcomes   *prometheus.CounterVec

	mu   sync.Mutex
	open map[net.Conn]connection
}

type connection struct {
	state http.ConnState
	since time.Time // in this state
}

func newConnections(size int, keepIdle bool, m *metrics) *connections {
	return &connections{
		size: size, keepIdle: keepIdle, hurryGrace: defaultHurryGrace, outcomes: m.connections,
		open: map[net.Conn]connection{},
	}
}

// observe is the http.Server's ConnState.
func (cs *connections) observe(c net.Conn, state http.ConnState) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn() // whose Close sends no alert first
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	_, open := cs.open[c]
	switch {
	case state == http.StateNew:
		cs.admit(c)
	case state == http.StateClosed:
		delete(cs.open, c)
	case open: // and not closed for another one
		cs.open[c] = connection{state, time.Now()}
	}
}

// admit adds a connection. If there are too many, it closes the one that has waited longest for a
// request; if idle ones are kept, first those that wait for their first request. If all serve
// requests, it closes the new connection. mu must be held.
func (cs *connections) admit(c net.Conn) {
	if len(cs.open) >= cs.size {
		longest := cs.longestQuiet()
		if longest == nil {
			cs.count(connRefused)
			_ = c.Close()
			return
		}
		cs.count(connEvicted) // before its client can notice
		delete(cs.open, longest)
		_ = longest.Close()
	}
	cs.count(connAccepted)
	cs.open[c] = connection{http.StateNew, time.Now()}
}

// longestQuiet returns the connection that is closed for another one, or nil.
func (cs *connections) longestQuiet() (longest net.Conn) {
	var than connection
	for c, this := range cs.open {
		switch {
		case !this.quiet():
		case longest == nil, cs.keepIdle && this.state < than.state,
			(!cs.keepIdle || this.state == than.state) && this.since.Before(than.since):
			longest, than = c, this
		}
	}
	return longest
}

// quiet reports whether the connection has no request.
func (c connection) quiet() bool { return c.state == http.StateNew || c.state == http.StateIdle }

func (cs *connections) count(outcome string) { cs.outcomes.WithLabelValues(outcome).Inc() }

// hurry gives connections without a request hurryGrace from then on to send one, or from when they
// became quiet. Call it again and again, until it returns true: no connection is left.
//
// A deadline, unlike closing, does not affect a connection whose request has arrived but has not
// been read. The http.Server removes it when it has read the header, and replaces it when the
// connection becomes idle.
func (cs *connections) hurry(then time.Time) (empty bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c, this := range cs.open {
		if this.quiet() {
			began := slices.MaxFunc([]time.Time{then, this.since}, time.Time.Compare)
			_ = c.SetReadDeadline(began.Add(cs.hurryGrace))
		}
	}
	return len(cs.open) == 0
}
