package podlimit

import "outboard.dev/outboard/snapshot"

// usage is the data about one node.
type usage struct {
	max   int64           // -1 if the node declares none that is a number
	count map[group]int64 // matching pods
}

func (p *podLimit) usageOf(n *snapshot.Node) usage {
	f := usage{max: p.max}
	if text, declared := p.maxFrom.Of(n.Object); declared {
		f.max = parseLimit(text)
	}
	for _, pod := range n.Pods {
		g, ok := p.request(pod)
		if !ok {
			continue
		}
		if f.count == nil {
			f.count = map[group]int64{}
		}
		f.count[g]++
	}
	return f
}
