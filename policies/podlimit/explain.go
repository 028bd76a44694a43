package podlimit

import (
	"fmt"

	"outboard.dev/outboard/snapshot"
)

// Explain implements policy.Explainer: it says how many matching pods the node has, and which limit it has from where.
func (c *cycle) Explain(n *snapshot.Node) []string {
	if n == nil {
		return nil
	}
	f, limit := c.policy.usage.Of(n), "max"
	if text, declared := c.policy.maxFrom.Of(n.Object); declared {
		limit = c.policy.maxFrom.String()
		if f.max < 0 {
			return []string{fmt.Sprintf("limit: %q is not a whole number from 0 (%s)", text, limit)}
		}
	}
	where := ""
	if c.key != sharedLimit {
		where = " of namespace " + c.key
	}
	return []string{fmt.Sprintf("matching pods%s: %d of %d (limit from %s)", where, f.count[c.key], f.max, limit)}
}
