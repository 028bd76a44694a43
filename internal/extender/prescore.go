package extender

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/extender/wire"
	"outboard.dev/outboard/snapshot"
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
// A response is not used if, since the filter call, a pod has come to one of the nodes, or a node has come or gone, or a preempt call has
// nominated another pod, or prescoreTimeout has passed. It is used once. A reload creates a Handler without responses.
type prescores struct {
	mu     sync.Mutex
	latest [maxPrescores]prescore
	next   int // index in latest to replace
	unused int // responses since the latest prioritize call
}

// prescore is the response to an expected prioritize call.
type prescore struct {
	body     []byte // of the expected call; empty: already used
	response []byte
	record   *decision.Record
	scores   *decision.Scores
	filtered time.Time // when the filter call came
	view     *snapshot.View
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
	scale(&c.result)
	h.prescores.put(c)
}

// wanted reports whether a prioritize call is likely to follow.
func (p *prescores) wanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unused = min(p.unused+1, maxUnusedPrescores+1)
	return p.unused <= maxUnusedPrescores
}

// put keeps the scores in c.result of the nodes in c.kept.
func (p *prescores) put(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.latest[p.next]
	p.next = (p.next + 1) % maxPrescores
	s.body = c.request.AppendKept(s.body[:0], c.kept)
	s.response = wire.AppendHostPriorities(s.response[:0], &c.request, c.kept, c.result.Totals)
	s.record, s.filtered, s.view = c.result.Record, c.started, c.filtered.View
	s.scores, c.result.Scores = c.result.Scores, s.scores // reuse the memory of both
}

// prescored responds to the prioritize call if its response is there and can be used.
func (h *Handler) prescored(c *call) bool {
	view, err := h.view("")
	if err != nil {
		return false
	}
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
	if c.started.Sub(s.filtered) > prescoreTimeout || joined(s.view, view, c.body) {
		return false
	}
	c.response.Text = append(c.response.Text, s.response...)
	c.record = s.record
	s.scores, c.result.Scores = c.result.Scores, s.scores
	return true
}

// joined reports whether the later view has another pod on one of the nodes in the body, other nodes, or other nominations.
func joined(view, later *snapshot.View, body []byte) bool {
	if later.NodeIndex() != view.NodeIndex() || !slices.Equal(later.Nominated(), view.Nominated()) {
		return true
	}
	for node := range later.ChangedSince(view) {
		if before := view.At(node.Row()); !isSubset(node.Pods, before.Pods) && bytes.Contains(body, []byte(`"`+node.Name+`"`)) {
			return true
		}
	}
	return false
}

// isSubset compares two lists of the pods of one node, which are in the same order.
func isSubset(pods, of []*corev1.Pod) bool {
	for _, pod := range pods {
		i := slices.IndexFunc(of, func(p *corev1.Pod) bool { return p.UID == pod.UID })
		if i < 0 {
			return false
		}
		of = of[i+1:]
	}
	return true
}
