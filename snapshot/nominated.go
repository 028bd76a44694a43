package snapshot

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// Nominated returns the pods nominated to each node, by the node's name: kube-scheduler evicts pods there to make room
// for them, or is about to bind them. The most important pod comes first: the one with the highest priority, and of
// those the oldest. The node need not exist. The map, the slices and the pods must not be changed. Nominated pods are
// not in [Node.Pods].
func (v *View) Nominated() map[string][]*corev1.Pod { return v.nominated }

// nominate adds or removes the nomination of a pod that is on the node; "": on none.
func (b *Builder) nominate(pod *corev1.Pod, node string) {
	if node != "" || pod.Status.NominatedNodeName == "" || pod.DeletionTimestamp != nil || Ended(pod) {
		if _, was := b.nominated[pod.UID]; was {
			delete(b.nominated, pod.UID)
			b.nominatedDirty = true
		}
		return
	}
	if old := b.nominated[pod.UID]; old != nil && same(old, pod) {
		return
	}
	if b.nominated == nil {
		b.nominated = map[types.UID]*corev1.Pod{}
	}
	b.nominated[pod.UID] = pod
	b.nominatedDirty = true
}

// nominatedByNode returns the nominated pods for a View.
func (b *Builder) nominatedByNode() map[string][]*corev1.Pod {
	if len(b.nominated) == 0 {
		return nil
	}
	byNode := map[string][]*corev1.Pod{}
	for _, pod := range b.nominated {
		byNode[pod.Status.NominatedNodeName] = append(byNode[pod.Status.NominatedNodeName], pod)
	}
	for _, pods := range byNode {
		slices.SortFunc(pods, CompareNominated)
	}
	return byNode
}

// CompareNominated is the order of pods in [View.Nominated].
func CompareNominated(a, b *corev1.Pod) int {
	return cmp.Or(
		-cmp.Compare(corev1helpers.PodPriority(a), corev1helpers.PodPriority(b)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		comparePods(a, b),
	)
}
