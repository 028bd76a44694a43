package server

import (
	"context"
	"net/http"
	"os"
)

// A handshake of TLS takes a millisecond of processor time, which is more than most requests take, and nothing ends it early. So connections
// take turns until they have sent the first byte of a request: a connection computes, from the moment that bytes have arrived until it reads
// again, only while it has one of the turns. The turns are a room, shared by the callers' addresses, as nobody knows the name of a caller
// before its handshake.

// newTurns returns a room that leaves one processor to requests, if there are several.
func newTurns(processors int) *room { return newRoom("handshakes", int64(max(processors-1, 1))) }

// Read is called by the http.Server, and by one goroutine at a time. Until the first request, a nil error means that the connection has a turn.
func (c *conn) Read(p []byte) (int, error) {
	if c.turns == nil {
		return c.TCPConn.Read(p)
	}
	c.endTurn()
	n, err := c.TCPConn.Read(p)
	if err != nil {
		return n, err
	}
	c.turn = hold{amount: 1}
	if c.hasTurn = c.turns.takeFree(&c.turn, c.address()); !c.hasTurn {
		waiting, cancel := context.WithTimeout(context.Background(), c.listener.turnTimeout)
		defer cancel()
		if c.hasTurn = c.turns.take(waiting, &c.turn, c.address()); !c.hasTurn {
			return 0, os.ErrDeadlineExceeded
		}
	}
	return n, nil
}

// endTurn is called by the goroutine that reads.
func (c *conn) endTurn() {
	if c.hasTurn {
		c.hasTurn = false
		c.turns.release(&c.turn)
	}
}

// speaks ends the last turn of a connection at the first byte of its first request, and when the connection is closed. It is called by the
// goroutine that reads.
func (c *conn) speaks(state http.ConnState) {
	if c.turns != nil && (state == http.StateActive || state == http.StateClosed) {
		c.endTurn()
		c.turns = nil
	}
}
