package snapshot

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// PodsByBindTime holds the pods on a node, the last bound first, so that a binary search finds the
// pods bound since a time: those that a measurement of that time does not include. It is immutable,
// and usually the value of a [Fact].
type PodsByBindTime struct {
	// Pods are the pods on the node, the last bound first.
	Pods  []*corev1.Pod
	bound []int64 // Unix seconds; see boundAt
}

// PodsByBindTimeOf returns the pods of the node by bind time.
func PodsByBindTimeOf(n *Node) PodsByBindTime {
	p := PodsByBindTime{Pods: slices.Clone(n.Pods), bound: make([]int64, len(n.Pods))}
	slices.SortStableFunc(p.Pods, func(x, y *corev1.Pod) int { return cmp.Compare(boundAt(y), boundAt(x)) })
	for i, pod := range p.Pods {
		p.bound[i] = boundAt(pod)
	}
	return p
}

// Since returns how many of Pods were bound at the time or later. The API server truncates its
// times to seconds: a pod that may have been bound later counts.
func (p *PodsByBindTime) Since(t time.Time) int {
	first := t.Unix()
	return sort.Search(len(p.bound), func(i int) bool { return p.bound[i] < first })
}

// BoundBefore returns a time, by the API server's clock, before which the pod was bound. It is
// unknown for a pod that Outboard has just bound, until a watch event shows it.
func BoundBefore(pod *corev1.Pod) (at time.Time, known bool) {
	seconds := boundAt(pod)
	if seconds == math.MaxInt64 {
		return time.Time{}, false
	}
	return time.Unix(seconds+1, 0).UTC(), true // the API server truncates to seconds
}

// boundAt returns when the pod was bound, in Unix seconds. A pod without that time has just been
// bound by Outboard, and no watch event has shown it yet: it counts as later than all others. Its
// PodScheduled condition, if any, is from an earlier attempt that failed. A watch event always
// shows the time: package cluster adds that of its creation to a pod that was created with its
// node.
func boundAt(pod *corev1.Pod) int64 {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Unix()
		}
	}
	return math.MaxInt64
}
