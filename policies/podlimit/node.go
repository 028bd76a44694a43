package podlimit

import (
	"strconv"
	"strings"

	"outboard.dev/outboard/snapshot"
)

// fact is the data about one node.
type fact struct {
	max   int64            // -1 if the node declares none that is a number
	count map[string]int64 // matching pods, by namespace or sharedLimit
}

func (p *podLimit) observe(n *snapshot.Node) fact {
	f := fact{max: p.max}
	if text, declared := p.maxFrom.Of(n.Object); declared {
		own, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
		if err != nil || own < 0 {
			own = -1
		}
		f.max = own
	}
	for _, pod := range n.Pods {
		key, ok := p.countedAs(pod)
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
