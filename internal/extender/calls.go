package extender

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
	"weak"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender/wire"
	"outboard.dev/outboard/snapshot"
)

// call is the memory of one request; it is reused.
type call struct {
	verb         decision.Verb
	started      time.Time
	body         []byte
	response     wire.Response
	request      wire.Request
	nodes        []*snapshot.Node
	rows         []int32  // of the requested nodes; -1: not in the view
	known        bool     // all requested nodes are in the view
	hypothetical bool     // see Handler.hypothetical
	seen         []uint64 // a bit for each requested row
	result       engine.Result
	failed       []wire.Failure
	unresolvable []wire.Failure
	record       *decision.Record
	reserved     bool  // memory for decoding the body is reserved
	decodesNodes bool  // requestNodes.begin was called, but not end
	counted      bool  // a policy that counts pods applies to the pod of this filter call
	podWeight    int64 // memory for decoding the pod; 0: the view's copy is used
	weight       int64 // memory for decoding the body and evaluating it
}

const (
	// maxCalls is how many calls are kept for later requests.
	maxCalls = 16
	// maxKept bounds each buffer that is kept with a call. A larger body buffer is kept separately,
	// until the garbage collector runs.
	maxKept = 512 << 10
	// minBody is the size of the smallest buffer for a body.
	minBody = 16 << 10
	// maxArriving is how much of a body must arrive before memory for all of it is allocated.
	maxArriving = 4 << 20
)

// calls holds the memory of completed requests for later ones. Its size is bounded; that of a
// sync.Pool is not: with one, hostile callers (bench/hostile) make the process use twice the memory.
// The zero value is ready.
type calls struct {
	mu    sync.Mutex
	free  []*call // the latest one last
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

// put keeps the call's memory, unless it is too large or enough calls are kept.
func (cs *calls) put(c *call) {
	clear(c.nodes) // nodes that came with the request
	c.nodes, c.record, c.result.Record = c.nodes[:0], nil, nil
	c.reserved, c.counted, c.podWeight, c.weight, c.hypothetical = false, false, 0, 0, false
	c.response.Reset()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cap(c.body) > maxKept {
		cs.large = weak.Make(&largeBody{c.body[:0]})
		c.body = nil
	}
	c.request.Reset()
	if cap(c.response.Text) > maxKept {
		c.response.Text = nil
	}
	if len(cs.free) < maxCalls && cap(c.nodes) <= maxKept/8 {
		cs.free = append(cs.free, c)
	}
}

// read reads the body. It allocates the announced size of a large body only after the first few
// megabytes have arrived, because a client can announce any size.
func (cs *calls) read(c *call, r *http.Request) error {
	size := max(int(r.ContentLength), 0) + 1 // one more byte, to detect the end
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

// takeLarge returns the latest large buffer if it still exists and has about this size, or nil.
func (cs *calls) takeLarge(size int) []byte {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if kept := cs.large.Value(); kept != nil && size <= cap(kept.bytes) && cap(kept.bytes) <= size+size/4 {
		cs.large = weak.Pointer[largeBody]{}
		return kept.bytes
	}
	return nil
}
