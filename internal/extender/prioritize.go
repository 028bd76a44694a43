package extender

import (
	"context"
	"slices"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender/wire"
)

func (h *Handler) prioritize(ctx context.Context, c *call) error {
	req, err := h.decode(ctx, c)
	if err != nil {
		return err
	}
	if c.cycle != nil {
		err = c.cycle.Score(ctx, req.Nodes, req.Rows, &c.result)
	} else {
		unmanaged(req, &c.result)
	}
	c.record = c.result.Record
	if err != nil {
		return err
	}
	engine.ScaleScores(c.result.Totals, c.record.MaxTotal, engine.MaxExtenderScore)
	subtractLeast(c.result.Totals)
	c.response.Text = wire.AppendHostPriorities(c.response.Text, &c.request, c.result.Totals)
	return nil
}

// subtractLeast subtracts the lowest score from all scores, so that the response can omit the nodes
// that have it. kube-scheduler compares the sums of the scores of nodes, so a constant makes no
// difference.
func subtractLeast(scores []int64) {
	if len(scores) == 0 {
		return
	}
	least := slices.Min(scores)
	for i := range scores {
		scores[i] -= least
	}
}
