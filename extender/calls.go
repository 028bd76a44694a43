package extender

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
	"weak"

	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/extender/wire"
	"outboard.dev/outboard/snapshot"
)

// call is the memory of one request; it is used again.
type call struct {
	verb         decision.Verb
	started      time.Time
	body         []byte
	answer       wire.Answer
	request      wire.Request
	asked        []*snapshot.Node
	rows         []int32  // of the nodes asked; -1: not in the view
	known        bool     // all nodes asked are in the view
	seen         []uint64 // a bit for each row that was asked
	result       engine.Result
	failed       []wire.Failure
	unresolvable []wire.Failure
	record       *decision.Record
	filtered     engine.Request // of a filter call
	binding      *boundPods     // when a filter call began
	kept         []int32        // the nodes that passed, while they are scored
	reserved     bool           // memory for what is made of the body
	decodesNodes bool           // requestNodes.begin was called, and end was not
	podWeight    int64          // what decoding the pod may take; 0: our own copy is used
}

const (
	// maxCalls is how many calls are kept for the next requests.
	maxCalls = 16
	// maxKept is the size of the buffers that are kept with a call, each. A larger one for a
	// body is kept beside, for as long as the garbage collector has nothing to do.
	maxKept = 512 << 10
	// minBody is the size of the smallest buffer for a body.
	minBody = 16 << 10
	// maxArriving is how much of a body must have arrived before there is memory for all of it.
	maxArriving = 4 << 20
)

// calls are the memory of requests that have ended, for the next. What is kept is
// bounded, whatever the requests were. The zero value is ready.
type calls struct {
	mu    sync.Mutex
	free  []*call // the latest last
	large weak.Pointer[largeBody]
}

type largeBody struct{ bytes []byte }

func (cs *calls) get() *call {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.free) == 0 {
		return new(call)
	}
	c := cs.free[len(cs.free)-1]
	cs.free = cs.free[:len(cs.free)-1]
	return c
}

// put keeps the call's memory, unless it is too much or there is enough.
func (cs *calls) put(c *call) {
	clear(c.asked) // nodes that came with the request
	c.asked, c.record, c.result.Record = c.asked[:0], nil, nil
	c.reserved, c.podWeight = false, 0
	c.filtered, c.binding = engine.Request{}, nil
	c.answer.Reset()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cap(c.body) > maxKept {
		cs.large = weak.Make(&largeBody{c.body[:0]})
		c.body = nil
	}
	c.request.Reset()
	if cap(c.answer.Text) > maxKept {
		c.answer.Text = nil
	}
	if len(cs.free) < maxCalls && cap(c.asked) <= maxKept/8 {
		cs.free = append(cs.free, c)
	}
}

// read reads the body. A large one gets memory for all that was announced when the first
// few megabytes have arrived: until then, nobody has done more than announce it.
func (cs *calls) read(c *call, r *http.Request) error {
	size := max(int(r.ContentLength), 0) + 1 // one more byte, to see the end
	if c.body = c.body[:0]; size > maxKept {
		c.body = cs.takeLarge(size)
	}
	for {
		if len(c.body) == cap(c.body) {
			grown := max(minBody, 2*cap(c.body), min(size, 8*cap(c.body)))
			if cap(c.body) >= maxArriving {
				grown = max(grown, size)
			}
			if size > len(c.body) {
				grown = min(grown, size)
			}
			c.body = append(make([]byte, 0, grown), c.body...)
		}
		n, err := r.Body.Read(c.body[len(c.body):cap(c.body)])
		c.body = c.body[:len(c.body)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the request: %w", err)
		}
	}
}

// takeLarge returns a buffer: the latest, if it is still there and about as large, or nil.
func (cs *calls) takeLarge(size int) []byte {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if kept := cs.large.Value(); kept != nil && size <= cap(kept.bytes) && cap(kept.bytes) <= size+size/4 {
		cs.large = weak.Pointer[largeBody]{}
		return kept.bytes
	}
	return nil
}
