package gpumemory

import (
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy/claims"
	"outboard.dev/outboard/snapshot"
)

// podState is what the policy reads from a pod on a node. The fields that it reads of most pods are first, and near each other in memory.
type podState struct {
	pod           claims.Pod
	memory, count int64 // of GPUs, as in requested
	// gpu is the index in the annotation if that is one, or -1.
	gpu         int
	indexed     bool // has an annotation with indices, which may be invalid
	pending     bool
	marked      bool          // has an annotation that says whether the device plugin has given the pod its GPU
	notAssigned bool          // and that it has not
	shares      map[int]int64 // see allocated
	indexes     []int         // see parseIndexes
	holder      claims.Holder
}

// podStates are those of the pods on each node: of the many pods on a node that a pod has come to, only that one is read.
var podStates = snapshot.NewPodFact(func(pod *corev1.Pod) podState {
	s := podState{holder: claims.HolderOf(pod), pod: claims.PodOf(pod.UID)}
	if s.memory, s.count = requested(pod); s.memory > 0 {
		s.shares = allocated(pod.Annotations[allocationKey], s.memory)
	}
	text, indexed := pod.Annotations[indexKey]
	s.indexes, s.indexed, s.gpu = parseIndexes(text), indexed, -1
	if len(s.indexes) == 1 {
		s.gpu = s.indexes[0]
	}
	s.pending = pod.Status.Phase == corev1.PodPending || pod.Status.Phase == ""
	text, s.marked = pod.Annotations[assignedKey]
	s.notAssigned = text == notAssigned
	return s
})

// unserved reports whether the device plugin has not given the pod its GPU yet.
func (s *podState) unserved() bool { return s.pending && s.notAssigned }
