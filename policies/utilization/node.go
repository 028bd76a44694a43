package utilization

import "outboard.dev/outboard/snapshot"

// boundPods are the pods on a node, with their predicted use.
type boundPods struct {
	snapshot.PodsByBindTime
	uses []amounts // sums over the first pods, from none to all
}

func (p *utilization) boundPodsOf(n *snapshot.Node) boundPods {
	all := boundPods{snapshot.PodsByBindTimeOf(n), make([]amounts, len(n.Pods)+1)}
	for i, pod := range all.Pods {
		all.uses[i+1] = all.uses[i]
		for k, uses := range p.request(pod) {
			all.uses[i+1][k] += uses
		}
	}
	return all
}
