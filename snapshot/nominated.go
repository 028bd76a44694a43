package snapshot

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// Nominated returns the nominated pods: a scheduler evicts pods for each of them on the node in its
// status.nominatedNodeName, which need not exist, or is about to bind it there. The most important
// pod comes first: the one with the highest priority, and of those the oldest. The slice must not
// be changed.
//
// A preemption goes through these states:
//
//	preempt call ──▶ nominated ──▶ on the node
//	                     └───────▶ not nominated any more, or deleted
//
// What always holds:
//
//   - A pod is nominated if and only if SetPod has shown it so, on no node and without a
//     deletionTimestamp, whoever has written that, as in kube-scheduler. A response to a preempt call
//     changes nothing: it does not say which node kube-scheduler chooses, and other replicas do not
//     know it. So replicas differ only in how much their watches have shown.
//   - A pod is nominated or on a node, never both: the View that first has it on a node, by SetPod or
//     AssumePod, is the first without its nomination. So it counts at any time, and only once.
//   - A View without a pod that was evicted has the nomination for which it was. One watch shows both
//     in the order in which they were written: kube-scheduler writes the nomination while it evicts,
//     and before it looks at another pod, and the evicted pod ends its grace period. The order may be
//     another one if the pod has no grace period, or with the feature gate SchedulerAsyncAPICalls.
//     Then a pod that was placed in between is filtered again when it is bound.
func (v *View) Nominated() []*corev1.Pod { return v.nominated }

// setNomination records whether the pod, which is on the node ("": on none), is nominated.
func (b *Builder) setNomination(pod *corev1.Pod, node string) {
	former := b.nominated[pod.UID]
	switch {
	case node != "" || pod.DeletionTimestamp != nil || pod.Status.NominatedNodeName == "":
		b.endNomination(pod.UID)
	case former == nil || !same(former, pod):
		if b.nominated == nil {
			b.nominated = map[types.UID]*corev1.Pod{}
		}
		b.nominated[pod.UID] = pod
		b.nominatedDirty = true
	}
}

func (b *Builder) endNomination(uid types.UID) {
	if b.nominated[uid] != nil {
		delete(b.nominated, uid)
		b.nominatedDirty = true
	}
}

// nominations returns the nominated pods for a View.
func (b *Builder) nominations() []*corev1.Pod {
	if len(b.nominated) == 0 {
		return nil
	}
	all := make([]*corev1.Pod, 0, len(b.nominated))
	for _, pod := range b.nominated {
		all = append(all, pod)
	}
	slices.SortFunc(all, func(x, y *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(corev1helpers.PodPriority(y), corev1helpers.PodPriority(x)),
			x.CreationTimestamp.Compare(y.CreationTimestamp.Time),
			comparePods(x, y),
		)
	})
	return all
}
