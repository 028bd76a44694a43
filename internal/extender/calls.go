package extender

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
	"weak"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender/wire"
	"outboard.dev/outboard/snapshot"
)

// call is one request. Its memory is reused.
type call struct {
	body     []byte
	response wire.Response
	request  wire.Request
	nodes    []*snapshot.Node
	rows     []int32  // of the requested nodes; -1: not in the view
	seen     []uint64 // a bit for each requested row
	result   engine.Result
	failures []wire.Failure
	callState
}

// callState is what a call knows beyond its lists.
type callState struct {
	verb         decision.Verb
	started      time.Time
	record       *decision.Record
	known        bool          // all requested nodes are in the view
	hypothetical bool          // see Handler.hypothetical
	reserved     bool          // memory for decoding the body is reserved
	decodesNodes bool          // requestNodes.many is held
	counted      bool          // a policy that counts pods applies to the pod of this filter call
	cycle        *engine.Cycle // of filter and prioritize; nil: the profile does not manage the pod
}

const (
	// maxCalls is how many calls are kept for later requests.
	maxCalls = 16
	// maxKept bounds each buffer that is kept with a call. A larger body is kept in calls.large.
	maxKept = 512 << 10
	// minBody is the size of the smallest buffer for a body.
	minBody = 16 << 10
	// maxArriving is how much of a body must arrive before memory for all of it is allocated.
	maxArriving = 4 << 20
)

// calls holds the memory of completed requests for later ones. Its size is bounded; that of a
// sync.Pool is not: with one, hostile callers (bench/hostile) make the process use twice the
// memory.
type calls struct {
	free  chan *call
	mu    sync.Mutex
	large weak.Pointer[largeBody] // the latest large body, until the garbage collector runs
}

type largeBody struct{ bytes []byte }

func (cs *calls) get(verb decision.Verb) *call {
	c := new(call)
	select {
	case c = <-cs.free:
	default:
	}
	c.callState = callState{verb: verb, started: time.Now()}
	return c
}

// put keeps the call's memory, unless it is too large or enough calls are kept.
func (cs *calls) put(c *call) {
	clear(c.nodes) // nodes that came with the request
	c.nodes, c.cycle, c.record, c.result.Record = c.nodes[:0], nil, nil, nil
	c.request.Reset()
	c.response.Reset()
	if cap(c.body) > maxKept {
		cs.mu.Lock()
		cs.large = weak.Make(&largeBody{c.body[:0]})
		cs.mu.Unlock()
		c.body = nil
	}
	if cap(c.response.Text) > maxKept {
		c.response.Text = nil
	}
	if cap(c.nodes) <= maxKept/8 {
		select {
		case cs.free <- c:
		default:
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

// read reads the body. Its buffer grows with it, until so much has arrived that the client is to be
// believed: it can announce any size.
func (cs *calls) read(c *call, r *http.Request) error {
	size := max(int(r.ContentLength), 0) + 1 // one more byte, to detect the end
	if c.body = c.body[:0]; size > maxKept {
		c.body = cs.takeLarge(size)
	}
	for {
		if len(c.body) == cap(c.body) {
			more := size - len(c.body)
			if len(c.body) < maxArriving {
				more = min(more, 7*len(c.body))
			}
			c.body = slices.Grow(c.body, max(more, minBody))
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
