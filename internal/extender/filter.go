package extender

import (
	"context"
	"slices"
	"strings"
	"time"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender/wire"
)

func (h *Handler) filter(ctx context.Context, c *call) error {
	req, err := h.decode(ctx, c)
	if err != nil {
		return err
	}
	if c.cycle != nil {
		err = c.cycle.Filter(ctx, req.Nodes, req.Rows, &c.result)
	} else {
		unmanaged(req, &c.result)
	}
	c.record = c.result.Record
	if err != nil {
		if h.Filtered != nil && !c.hypothetical && causedByPod(err) {
			h.Filtered(req, false, nil, nil)
		}
		return err
	}
	if c.cycle != nil && c.record.Fit == 0 {
		c.cycle.MarkUnresolvable(ctx, req.Nodes, c.result.Rejected)
	}
	c.failures = c.failures[:0]
	// A shortlist keeps the response short.
	if c.record.Returned == c.record.Fit || c.record.Fit == 0 {
		for _, r := range c.result.Rejected {
			c.failures = append(c.failures, wire.Failure{
				Index: r.Index, Text: r.Reason.Text, Unresolvable: r.Unresolvable,
			})
		}
	}
	c.response.AppendFilterResult(&c.request, c.result.Kept, c.failures)
	if !c.hypothetical {
		h.filtered(c, req)
	}
	return nil
}

// maxReason bounds a text that the response has once for each node.
const maxReason = 256

// rejectAll responds that the pod fits on none of the nodes, because of the error, and that
// evicting pods does not help.
func (c *call) rejectAll(text string) {
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	c.failures = c.failures[:0]
	for i := range c.request.Len() {
		c.failures = append(c.failures, wire.Failure{Index: int32(i), Text: text, Unresolvable: true})
	}
	c.response.AppendFilterResult(&c.request, nil, c.failures)
}

// filtered records for later calls, and reports to h.Filtered, whether the pod fits.
func (h *Handler) filtered(c *call, req engine.Request) {
	fits := c.record.Fit > 0
	if c.counted {
		h.InFlight.unseen.set(req.Pod, fits, h.Cluster, time.Now())
	}
	if h.Filtered == nil || fits && !c.known && !c.fitsInView() {
		return
	}
	var unknown []string
	if !fits && !c.known {
		unknown = c.unknown()
	}
	var why *decision.Rejection
	if len(c.record.Rejections) > 0 {
		why = &c.record.Rejections[0]
	}
	h.Filtered(req, fits, unknown, why)
}

// fitsInView reports whether a node that passed is in the view.
func (c *call) fitsInView() bool {
	return slices.ContainsFunc(c.result.Kept, func(i int32) bool { return c.rows[i] >= 0 })
}

// unknown returns the names of requested nodes that are nil. It copies them, at most maxUnknown,
// because they may be kept while the pod is pending.
func (c *call) unknown() []string {
	var names []string
	for i, n := range c.nodes {
		if n == nil && len(names) < maxUnknown {
			names = append(names, string(c.request.Name(i)))
		}
	}
	return names
}
