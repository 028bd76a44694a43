package cost

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// host is what a Node object tells.
type host struct {
	spot bool
	// allocatable has only what there is more than nothing of, in cores, bytes or
	// units.
	allocatable map[corev1.ResourceName]float64
	offers      []offer // by source
}

// offer is what a Node object tells of one source.
type offer struct {
	price float64 // notAPrice if the source is a signal, or does not know
	key   string  // in a signal about keys; "": the node has none
}

const notAPrice = -1

func valid(price float64) bool { return price >= 0 && price <= maxPrice }

// read is the fact host.
func (p *cost) read(n *corev1.Node) host {
	h := host{allocatable: map[corev1.ResourceName]float64{}, offers: make([]offer, len(p.config.Prices))}
	for _, l := range p.config.Spot.Labels {
		if value, ok := n.Labels[l.Key]; ok && value == l.Value {
			h.spot = true
		}
	}
	for name, quantity := range n.Status.Allocatable {
		if amount := quantity.AsApproximateFloat64(); amount > 0 {
			h.allocatable[name] = amount
		}
	}
	for i := range p.config.Prices {
		h.offers[i] = p.config.Prices[i].offer(n, h.spot, p.tables[i])
	}
	return h
}

func (s *Source) offer(n *corev1.Node, spot bool, table map[string][]Row) offer {
	switch {
	case s.Label != "":
		return offer{price: parsePrice(n.Labels[s.Label])}
	case s.Annotation != "":
		return offer{price: parsePrice(n.Annotations[s.Annotation])}
	case s.Signal == "":
		return offer{price: find(table[n.Labels[corev1.LabelInstanceTypeStable]], n, spot)}
	}
	values := make([]string, len(s.KeyLabels))
	for i, key := range s.KeyLabels {
		if values[i] = n.Labels[key]; values[i] == "" {
			return offer{price: notAPrice}
		}
	}
	return offer{price: notAPrice, key: strings.Join(values, "/")}
}

func parsePrice(text string) float64 {
	price, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !valid(price) {
		return notAPrice
	}
	return price
}

// find returns the price in the first of the rows that matches the node.
func find(rows []Row, n *corev1.Node, spot bool) float64 {
	node := Row{Region: n.Labels[corev1.LabelTopologyRegion], Zone: n.Labels[corev1.LabelTopologyZone], CapacityType: OnDemand}
	if spot {
		node.CapacityType = Spot
	}
	for i := range rows {
		if rows[i].covers(&node) {
			return rows[i].Price
		}
	}
	return notAPrice
}

// byInstanceType makes a table quick to search, in its order.
func byInstanceType(rows []Row) map[string][]Row {
	found := map[string][]Row{}
	for _, r := range rows {
		found[r.InstanceType] = append(found[r.InstanceType], r)
	}
	return found
}

// price is what is known of the price of a node.
type price struct {
	source int // of the configuration's; -1: not known
	amount float64
	stale  bool // not known, but to a signal, too long ago
}

// price asks the sources in their order.
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

// value is what the signal that is source i says of the node.
func (c *cycle) value(i int, n *snapshot.Node, o offer) snapshot.Value {
	switch {
	case len(c.policy.config.Prices[i].KeyLabels) == 0:
		return c.columns[i].Of(n)
	case o.key == "":
		return snapshot.Value{}
	}
	return c.columns[i].Get(o.key)
}
