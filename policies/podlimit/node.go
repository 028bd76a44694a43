package podlimit

import (
	"strconv"
	"strings"

	"outboard.dev/outboard/snapshot"
)

// usage is the data about one node.
type usage struct {
	max   int64            // -1 if the node declares none that is a number
	count map[string]int64 // matching pods, by namespace or sharedLimit
}

func (p *podLimit) usageOf(n *snapshot.Node) usage {
	f := usage{max: p.max}
	if text, declared := p.maxFrom.Of(n.Object); declared {
		own, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
		if err != nil || own < 0 {
			own = -1
		}
		f.max = own
	}
	for _, pod := range n.Pods {
		key, ok := p.request(pod)
		if !ok {
			continue
		}
		if f.count == nil {
			f.count = map[string]int64{}
		}
		f.count[key]++
	}
	return f
}
