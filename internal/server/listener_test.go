package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"
)

func listen(t *testing.T, size int, keepIdle bool) *listener {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return newListener(l, size, keepIdle, newMetrics())
}

func dialTo(t *testing.T, l *listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func accept(t *testing.T, l *listener) *conn {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*conn)
}

func TestFullListenerClosesOneConnection(t *testing.T) {
	const newConn, idle, active = http.StateNew, http.StateIdle, http.StateActive
	for _, tc := range []struct {
		name   string
		states []http.ConnState // from the longest in its state to the shortest
		closed int              // index; -1: the new connection
		admin  int              // the same if idle connections are not kept
	}{
		{"all new: the oldest", []http.ConnState{newConn, newConn, newConn}, 0, 0},
		{"new before idle", []http.ConnState{idle, active, newConn}, 2, 0},
		{"idle before active", []http.ConnState{active, active, idle}, 2, 2},
		{"all idle: the longest", []http.ConnState{idle, idle, active}, 0, 0},
		{"all active: the one that comes", []http.ConnState{active, active, active}, -1, -1},
	} {
		for keepIdle, closed := range map[bool]int{true: tc.closed, false: tc.admin} {
			t.Run(fmt.Sprint(tc.name, ", idle ones are kept: ", keepIdle), func(t *testing.T) {
				l := listen(t, len(tc.states), keepIdle)
				var conns []*conn
				for _, state := range tc.states {
					dialTo(t, l)
					c := accept(t, l)
					if state != newConn {
						l.observe(c, state)
					}
					conns = append(conns, c)
				}
				dialTo(t, l)
				raw, err := l.AcceptTCP()
				if err != nil {
					t.Fatal(err)
				}
				late := &conn{TCPConn: raw, listener: l, state: newConn, since: time.Now()}
				if accepted := l.add(late); accepted != (closed >= 0) {
					t.Errorf("the new connection is accepted: %t", accepted)
				}
				for i, c := range conns {
					if _, open := l.conns[c]; open != (i != closed) {
						t.Errorf("connection %d is open: %t", i, open)
					}
				}
			})
		}
	}
}

// The end of the server does not reset a connection that a client has opened, even if the server
// has not accepted it yet.
func TestFinishAcceptsOpenedConnections(t *testing.T) {
	l := listen(t, 10, true)
	l.acceptGrace = time.Hour
	for range 3 {
		dialTo(t, l)
	}
	l.finish()
	for range 3 {
		accept(t, l)
	}
	l.acceptGrace = 0 // it is over
	l.finish()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("afterwards Accept returns %v, want net.ErrClosed", err)
	}
}
