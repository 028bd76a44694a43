package extender

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/extender/wire"
)

const (
	// maxPrescores is how many answers to prioritize calls wait for their call.
	maxPrescores = 4
	// prescoreTimeout is how long after a filter call an answer may be used. kube-scheduler takes milliseconds, unless another
	// extender takes longer.
	prescoreTimeout = time.Second
	// maxUnusedPrescores is how many answers in a row may be computed without a prioritize call: with so many, kube-scheduler is
	// not configured to make any.
	maxUnusedPrescores = 8
)

// prescores are answers to the prioritize calls that kube-scheduler is about to make. It asks about a pod twice, and in between the
// processor's caches are used by others; so when a filter call has been answered, the nodes that passed are scored at once. A
// prioritize call whose body is the one expected, byte for byte, gets the answer: the attempt to place a pod is judged by one View,
// as it is in kube-scheduler.
//
// An answer is not used when, since the filter call, a pod is being bound to one of the nodes, or another pod was nominated by a
// preempt call, or prescoreTimeout has passed. It is used once. A reload makes another Handler, which has none.
type prescores struct {
	mu     sync.Mutex
	latest [maxPrescores]prescore
	next   int // of latest to replace
	unused int // answers computed since the latest prioritize call
}

// prescore is the answer to a prioritize call that has not been made.
type prescore struct {
	body        []byte // of the call; empty: the answer has been used
	answer      []byte
	record      *decision.Record
	scores      *decision.Scores
	filtered    time.Time // when the filter call arrived
	binding     *boundPods
	nominations *engine.Nominations
}

// prescore computes the answer to the prioritize call that follows from the answer to the filter call.
func (h *Handler) prescore(ctx context.Context, c *call) {
	kept := c.result.Kept
	if c.request.Mode() != wire.Names || len(kept) < 2 || len(c.body) > maxKept || c.record.MaxTotal == 0 || !h.prescores.wanted() {
		return
	}
	c.kept = append(c.kept[:0], kept...)
	req := c.filtered
	for k, i := range c.kept { // k ≤ i: what is overwritten has been read
		req.Nodes[k], req.Rows[k] = req.Nodes[i], req.Rows[i]
	}
	req.Nodes, req.Rows = req.Nodes[:len(c.kept)], req.Rows[:len(c.kept)]
	if h.Engine.Score(ctx, req, &c.result) != nil {
		return // the prioritize call says so
	}
	h.scale(&c.result)
	h.prescores.put(c, req.Nominations)
}

// wanted says whether an answer is likely to be asked for.
func (p *prescores) wanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unused = min(p.unused+1, maxUnusedPrescores+1)
	return p.unused <= maxUnusedPrescores
}

// put keeps the scores in c.result of the nodes c.kept.
func (p *prescores) put(c *call, nominations *engine.Nominations) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.latest[p.next]
	p.next = (p.next + 1) % maxPrescores
	s.body = c.request.AppendKept(s.body[:0], c.kept)
	s.answer = wire.AppendHostPriorities(s.answer[:0], &c.request, c.kept, c.result.Totals)
	s.record, s.filtered, s.binding, s.nominations = c.result.Record, c.started, c.binding, nominations
	s.scores, c.result.Scores = c.result.Scores, s.scores // each writes over what the other does not need any more
}

// prescored answers the prioritize call if its answer has been computed and can be used.
func (h *Handler) prescored(c *call) bool {
	view, err := h.clusterView()
	if err != nil {
		return false
	}
	nominations := h.InFlight.preempted.now(view, c.started)
	p := &h.prescores
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unused = 0
	i := slices.IndexFunc(p.latest[:], func(s prescore) bool { return bytes.Equal(s.body, c.body) })
	if i < 0 || len(c.body) == 0 {
		return false
	}
	s := &p.latest[i]
	s.body = s.body[:0]
	if c.started.Sub(s.filtered) > prescoreTimeout || nominations != s.nominations || h.InFlight.now().joined(s.binding, c.body) {
		return false
	}
	c.answer.Text = append(c.answer.Text, s.answer...)
	c.record = s.record
	s.scores, c.result.Scores = c.result.Scores, s.scores
	return true
}

// joined says whether one of the pods, which was not among those before, is being bound to a node that the body names.
func (p *boundPods) joined(before *boundPods, body []byte) bool {
	if p == nil || p == before {
		return false
	}
	for node, pods := range *p {
		for _, pod := range pods {
			if !slices.Contains(before.on(node), pod) && bytes.Contains(body, []byte(`"`+node+`"`)) {
				return true
			}
		}
	}
	return false
}
