package snapshot

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Arrivals are the pods on a node in the order in which they were bound, so that those bound
// since any time are found by a search: those that are not yet in what was read at that time.
// It never changes, and belongs into a [Fact].
type Arrivals struct {
	// Pods are the node's, the latest first.
	Pods  []*corev1.Pod
	bound []int64 // Unix seconds; see boundAt
}

// ArrivalsOf sorts the pods of the node.
func ArrivalsOf(n *Node) Arrivals {
	a := Arrivals{Pods: slices.Clone(n.Pods), bound: make([]int64, len(n.Pods))}
	slices.SortStableFunc(a.Pods, func(x, y *corev1.Pod) int { return cmp.Compare(boundAt(y), boundAt(x)) })
	for i, pod := range a.Pods {
		a.bound[i] = boundAt(pod)
	}
	return a
}

// Since is how many of Pods were bound at the time or later. Of the API server's times, the
// part of a second is missing: a pod that may have been bound later counts.
func (a *Arrivals) Since(t time.Time) int {
	first := t.Unix()
	return sort.Search(len(a.bound), func(i int) bool { return a.bound[i] < first })
}

// BoundBefore is a time, by the API server's clock, before which the pod was bound. It is not
// known of a pod that was just bound by us and not seen since.
func BoundBefore(pod *corev1.Pod) (at time.Time, known bool) {
	seconds := boundAt(pod)
	if seconds == math.MaxInt64 {
		return time.Time{}, false
	}
	return time.Unix(seconds+1, 0).UTC(), true // the part of a second is missing
}

// boundAt is when the pod was bound, in Unix seconds. One that does not say so has just been
// bound by us, and was not seen since: it is later than all others. Its condition, if it has
// one, is of a time when there was no place for it.
func boundAt(pod *corev1.Pod) int64 {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Unix()
		}
	}
	return math.MaxInt64
}
