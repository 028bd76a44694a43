package extender

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/binder"
	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/extender/wire"
)

const (
	// maxPrescores is how many responses wait for their prioritize call.
	maxPrescores = 4
	// prescoreTimeout is how long after a filter call a response may be used. kube-scheduler calls within milliseconds,
	// unless another extender takes longer.
	prescoreTimeout = time.Second
	// maxUnusedPrescores is how many responses in a row may remain unused. After that, kube-scheduler is assumed to
	// make no prioritize calls.
	maxUnusedPrescores = 8
)

// prescores holds responses to prioritize calls that kube-scheduler is about to make. It calls twice for a pod, and
// between the two calls it uses the processor's caches itself. So the handler scores the nodes that passed immediately
// after a filter call. A prioritize call whose body is the expected one, byte for byte, gets the response: one View
// decides the whole scheduling attempt, as in kube-scheduler.
//
// A response is not used if, since the filter call, a pod is being bound to one of the nodes, or a preempt call has
// nominated another pod, or prescoreTimeout has passed. It is used once. A reload creates a Handler without responses.
type prescores struct {
	mu     sync.Mutex
	latest [maxPrescores]prescore
	next   int // index in latest to replace
	unused int // responses since the latest prioritize call
}

// prescore is the response to an expected prioritize call.
type prescore struct {
	body        []byte // of the expected call; empty: already used
	answer      []byte
	record      *decision.Record
	scores      *decision.Scores
	filtered    time.Time // when the filter call came
	binding     *binder.Pods
	nominations *engine.Nominations
}

// prescore computes the response to the prioritize call that follows the response to the filter call.
func (h *Handler) prescore(ctx context.Context, c *call) {
	kept := c.result.Kept
	if c.request.Mode() != wire.Names || len(kept) < 2 || len(c.body) > maxKept || c.record.MaxTotal == 0 || !h.prescores.wanted() {
		return
	}
	c.kept = append(c.kept[:0], kept...)
	req := c.filtered
	for k, i := range c.kept { // k ≤ i: overwrites only entries that were read before
		req.Nodes[k], req.Rows[k] = req.Nodes[i], req.Rows[i]
	}
	req.Nodes, req.Rows = req.Nodes[:len(c.kept)], req.Rows[:len(c.kept)]
	if h.Engine.Score(ctx, req, &c.result) != nil {
		return // the prioritize call will return the error
	}
	h.scale(&c.result)
	h.prescores.put(c, req.Nominations)
}

// wanted reports whether a prioritize call is likely to follow.
func (p *prescores) wanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unused = min(p.unused+1, maxUnusedPrescores+1)
	return p.unused <= maxUnusedPrescores
}

// put keeps the scores in c.result of the nodes in c.kept.
func (p *prescores) put(c *call, nominations *engine.Nominations) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.latest[p.next]
	p.next = (p.next + 1) % maxPrescores
	s.body = c.request.AppendKept(s.body[:0], c.kept)
	s.answer = wire.AppendHostPriorities(s.answer[:0], &c.request, c.kept, c.result.Totals)
	s.record, s.filtered, s.binding, s.nominations = c.result.Record, c.started, c.binding, nominations
	s.scores, c.result.Scores = c.result.Scores, s.scores // reuse the memory of both
}

// prescored answers the prioritize call if its response is there and can be used.
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
	if c.started.Sub(s.filtered) > prescoreTimeout || nominations != s.nominations || joined(h.InFlight.Now(), s.binding, c.body) {
		return false
	}
	c.answer.Text = append(c.answer.Text, s.answer...)
	c.record = s.record
	s.scores, c.result.Scores = c.result.Scores, s.scores
	return true
}

// joined reports whether one of the pods that is not among those before is being bound to a node in the body.
func joined(pods, before *binder.Pods, body []byte) bool {
	for node := range pods.ChangedSince(before) {
		if !isSubset(pods.On(node), before.On(node)) && bytes.Contains(body, []byte(`"`+node+`"`)) {
			return true
		}
	}
	return false
}

func isSubset(pods, of []*corev1.Pod) bool {
	return !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return !slices.Contains(of, pod) })
}
