package cost

import "outboard.dev/outboard/snapshot"

// price is the price of a node, if it is known.
type price struct {
	source int // index in the configuration; -1: unknown
	amount float64
	stale  bool // unknown, but a signal has a stale value
}

// price reads the sources in their order.
func (c *cycle) price(n *snapshot.Node, h *host) price {
	stale := false
	for i, o := range h.offers {
		if c.policy.config.Prices[i].Signal != "" {
			value := c.value(i, n, o)
			if value.Current() && valid(value.Number) {
				return price{source: i, amount: value.Number}
			}
			stale = stale || value.Stale
		} else if o.price >= 0 {
			return price{source: i, amount: o.price}
		}
	}
	return price{source: -1, stale: stale}
}

// value returns the value of the node in the signal of source i.
func (c *cycle) value(i int, n *snapshot.Node, o offer) snapshot.Value {
	switch {
	case len(c.policy.config.Prices[i].KeyLabels) == 0:
		return c.signals[i].Of(n)
	case o.key == "":
		return snapshot.Value{}
	}
	return c.signals[i].Get(o.key)
}
