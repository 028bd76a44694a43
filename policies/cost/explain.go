package cost

import (
	"cmp"
	"fmt"
	"time"

	"outboard.dev/outboard/snapshot"
)

func (c *cycle) Explain(n *snapshot.Node) []string {
	if n == nil {
		if c.refusal == "" {
			return nil
		}
		return []string{"spot nodes: not allowed (" + c.refusal + ")"}
	}
	h := c.policy.hosts.Of(n)
	p := c.price(n, h)
	var said []string
	if p.source < 0 {
		said = append(said, "price: unknown")
	} else {
		said = append(said, c.explainCost(n, h, p))
		if c.policy.sunkCost && !*c.policy.used.Of(n) {
			said = append(said, fmt.Sprintf("score: by the whole price, %.4g (the node is empty)", p.amount))
		}
	}
	for i := range c.policy.config.Prices {
		if i == p.source {
			break
		}
		if why := c.explainMissing(i, n, h); why != "" {
			said = append(said, why)
		}
	}
	return said
}

// explainCost returns the formula with its numbers.
func (c *cycle) explainCost(n *snapshot.Node, h *host, p price) string {
	config := &c.policy.config
	from := config.Prices[p.source].describe()
	if config.Prices[p.source].Signal != "" {
		from += " at " + c.value(p.source, n, h.offers[p.source]).At.UTC().Format(time.RFC3339)
	}
	text := fmt.Sprintf("%.4g (%s)", p.amount, from)
	if config.ScoringStrategy.Type == NodeCost {
		return "cost of the node: " + text
	}
	if share, of := c.share(h); of == "" {
		text += " × 1 (the node reports none of the requested resources)"
	} else {
		text += fmt.Sprintf(" × %.4g (the pod's share of %s)", share, of)
	}
	return fmt.Sprintf("cost of the pod: %.4g = %s", c.costs(h, p), text)
}

// explainMissing returns why source i has no price for the node, or "".
func (c *cycle) explainMissing(i int, n *snapshot.Node, h *host) string {
	s := &c.policy.config.Prices[i]
	if text, _ := s.PriceFrom.Of(n.Object); text != "" {
		return fmt.Sprintf("%s: %q is not a price", s.describe(), text)
	}
	if s.Signal == "" {
		return ""
	}
	value := c.value(i, n, h.offers[i])
	switch {
	case value.Stale:
		return fmt.Sprintf("%s: unknown (%s)", s.describe(), value.Missing(s.Signal, cmp.Or(h.offers[i].key, "the node")))
	case value.Current():
		return fmt.Sprintf("%s: %g is not a price", s.describe(), value.Number)
	}
	return ""
}

func (s *Source) describe() string {
	if s.PriceFrom != nil {
		return s.PriceFrom.String()
	}
	return "signal " + s.Signal
}
