package snapshot

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// Waiting returns the pods that are on no node, without those that have scheduling gates or a
// deletionTimestamp. The most important pod comes first: the one with the highest priority, and of
// those the oldest. It is empty if the View has no History. The slice must not be changed.
//
// As in the History, a new pod does not cause a new View, and neither does one that is deleted.
func (v *View) Waiting() []*corev1.Pod { return v.waiting }

// TimeStep is the precision of [View.Time].
const TimeStep = 10 * time.Second

// Time is when the View was published, or earlier if no pods wait: it alone causes a new View only
// while pods do. Without SetTime it is zero.
func (v *View) Time() time.Time { return v.time }

// SetTime sets the time of the following Views.
func (b *Builder) SetTime(now time.Time) { b.time = now.Truncate(TimeStep) }

// CompareImportance orders pods as [View.Waiting] and [View.Nominated] do.
func CompareImportance(x, y *corev1.Pod) int {
	return cmp.Or(
		cmp.Compare(corev1helpers.PodPriority(y), corev1helpers.PodPriority(x)),
		x.CreationTimestamp.Compare(y.CreationTimestamp.Time),
		comparePods(x, y),
	)
}

// setWaiting records whether the pod waits.
func (b *Builder) setWaiting(pod *corev1.Pod, waits bool) {
	i, known := slices.BinarySearchFunc(b.waiting, pod, CompareImportance)
	switch {
	case !known && !waits || known && waits && same(b.waiting[i], pod):
		return
	case !b.waitingOwned: // the last View has it
		b.waiting, b.waitingOwned = slices.Clone(b.waiting), true
	}
	switch {
	case !known:
		b.waiting = slices.Insert(b.waiting, i, pod)
	case waits:
		b.waiting[i] = pod
	default:
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
}
