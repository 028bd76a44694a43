package utilization

import (
	"time"

	"outboard.dev/outboard/snapshot"
)

// boundPods are the pods on a node, with their predicted use.
type boundPods struct {
	snapshot.PodsByBindTime
	// Sums over the first pods, from none to all: uses, and uses times when the pod was bound, in
	// seconds; without those of pods whose time is not known, which are the first.
	uses, times []amounts
}

func boundPodsOf(n *snapshot.Node) boundPods {
	all := boundPods{snapshot.PodsByBindTimeOf(n), make([]amounts, len(n.Pods)+1), make([]amounts, len(n.Pods)+1)}
	for i, pod := range all.Pods {
		all.uses[i+1], all.times[i+1] = all.uses[i], all.times[i]
		at, known := snapshot.BoundBefore(pod)
		for k, uses := range request(pod) {
			all.uses[i+1][k] += uses
			if known {
				all.times[i+1][k] += uses * float64(at.Unix())
			}
		}
	}
	return all
}

// unmeasured returns what pods use that a mean over the window before the time does not include,
// and how many pods that is: pods bound since count as a whole, and of those bound in the window,
// the part of the window before they were bound.
func (b *boundPods) unmeasured(k kind, at time.Time, window time.Duration) (uses float64, pods int) {
	whole, begin := b.Since(at), at.Add(-window)
	uses = b.uses[whole][k]
	if window <= 0 {
		return uses, whole
	}
	pods = max(whole, b.Since(begin))
	seconds := float64(begin.UnixNano()) / float64(time.Second)
	inWindow := b.times[pods][k] - b.times[whole][k] - seconds*(b.uses[pods][k]-uses)
	return uses + max(0, inWindow)/window.Seconds(), pods
}
