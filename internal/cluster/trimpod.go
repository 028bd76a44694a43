package cluster

import (
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// trimPod is snapshot.TrimPod with what sayWhenBound does.
func trimPod(pod *corev1.Pod) {
	snapshot.TrimPod(pod)
	sayWhenBound(pod)
}

// trimmedPod is trimPod for a pod that others use, too. It does not change the pod.
func trimmedPod(pod *corev1.Pod) *corev1.Pod {
	trimmed := snapshot.TrimmedPod(pod)
	sayWhenBound(trimmed)
	return trimmed
}

// sayWhenBound says when a pod was bound that was created with its node: the API server says so of
// pods that it binds, and of others a kubelet does, later.
func sayWhenBound(trimmed *corev1.Pod) {
	if _, known := snapshot.BoundBefore(trimmed); trimmed.Spec.NodeName != "" && !known {
		trimmed.Status.Conditions = append(trimmed.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: trimmed.CreationTimestamp,
		})
	}
}
