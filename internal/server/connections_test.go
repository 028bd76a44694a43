package server

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"
)

func TestFullServerClosesOneConnection(t *testing.T) {
	const newConn, idle, active = http.StateNew, http.StateIdle, http.StateActive
	for _, tc := range []struct {
		name   string
		states []http.ConnState // from the longest in its state to the shortest
		closed int              // index; the last is the new connection
		admin  int              // the same if idle connections are not kept
	}{
		{"all new: the oldest", []http.ConnState{newConn, newConn, newConn}, 0, 0},
		{"new before idle", []http.ConnState{idle, active, newConn}, 2, 0},
		{"idle before active", []http.ConnState{active, active, idle}, 2, 2},
		{"all idle: the longest", []http.ConnState{idle, idle, active}, 0, 0},
		{"all active: the one that comes", []http.ConnState{active, active, active}, 3, 3},
	} {
		for keepIdle, closed := range map[bool]int{true: tc.closed, false: tc.admin} {
			t.Run(fmt.Sprint(tc.name, ", idle ones are kept: ", keepIdle), func(t *testing.T) {
				all := newConnections(len(tc.states), keepIdle, newMetrics())
				var ends []net.Conn
				for _, state := range append(tc.states, newConn) {
					c, end := net.Pipe()
					defer end.Close()
					ends = append(ends, c)
					if all.observe(c, newConn); state != newConn {
						all.observe(c, state)
					}
				}
				for i, c := range ends {
					_, open := all.open[c]
					if err := c.SetDeadline(time.Time{}); open != (i != closed) || open != (err == nil) {
						t.Errorf("connection %d is open: %t, %v", i, open, err)
					}
				}
			})
		}
	}
}
