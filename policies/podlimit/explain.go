package podlimit

import (
	"fmt"

	"outboard.dev/outboard/snapshot"
)

// Explain implements policy.Explainer: it says how many matching pods the node has, and which limit
// it has from where.
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
	where, value, most := "", "", f.max
	if c.group.namespace != "" {
		where = " of namespace " + c.group.namespace
	}
	if c.policy.each != nil {
		value = fmt.Sprintf("%s is %q, ", c.policy.each.Label, c.group.value)
	}
	if c.own < most {
		most, limit = c.own, fmt.Sprintf("%s of the pod", c.policy.maxFromPod)
	}
	return []string{fmt.Sprintf("matching pods%s: %d of %d (%slimit from %s)", where, f.count[c.group], most, value, limit)}
}
