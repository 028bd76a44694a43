package gpumemory

import (
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/snapshot"
)

// podState is what the policy reads from a pod on a node.
type podState struct {
	memory, count int64         // of GPUs, as in requested
	indexes       []int         // of the GPUs in its annotation: see parseIndexes; nil: no annotation
	shares        map[int]int64 // see allocated
	pending       bool
	marked        bool // has an annotation that says whether the device plugin has given the pod its GPU
	notAssigned   bool // and that it has not
	holder        allocations.Holder
}

// podStates are those of the pods on each node: of the many pods on a node that a pod has come to,
// only that one is read.
var podStates = snapshot.NewPodFact(func(pod *corev1.Pod) podState {
	s := podState{holder: allocations.HolderOf(pod)}
	if s.memory, s.count = requested(pod); s.memory > 0 {
		s.shares = allocated(pod.Annotations[allocationKey], s.memory)
	}
	if text, ok := pod.Annotations[indexKey]; ok {
		s.indexes = parseIndexes(text)
	}
	s.pending = pod.Status.Phase == corev1.PodPending || pod.Status.Phase == ""
	text, marked := pod.Annotations[assignedKey]
	s.marked, s.notAssigned = marked, text == notAssigned
	return s
})

func (s *podState) unserved() bool { return s.pending && s.notAssigned }
