package cluster

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

// trimPod is snapshot.TrimPod with what correct does.
func trimPod(pod *corev1.Pod) {
	managers := pod.ManagedFields
	snapshot.TrimPod(pod)
	correct(pod, managers)
}

// trimmedPod is trimPod for a pod that others use, too. It does not change the pod.
func trimmedPod(pod *corev1.Pod) *corev1.Pod {
	trimmed := snapshot.TrimmedPod(pod)
	correct(trimmed, pod.ManagedFields)
	return trimmed
}

// correct removes a nomination that no scheduler has made. Every client that may write the status of
// pods can nominate one; a cluster autoscaler, for instance, does so to show where it expects the
// pod. That is not a reservation. It also says when a pod was bound that was created with its node:
// the API server says so of pods that it binds, and of others a kubelet does, later.
func correct(trimmed *corev1.Pod, managers []metav1.ManagedFieldsEntry) {
	if trimmed.Status.NominatedNodeName != "" && nominatedByOthers(managers) {
		trimmed.Status.NominatedNodeName = ""
	}
	if _, known := snapshot.BoundBefore(trimmed); trimmed.Spec.NodeName != "" && !known {
		trimmed.Status.Conditions = append(trimmed.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: trimmed.CreationTimestamp,
		})
	}
}

// nominatedByOthers reports whether the nomination is known to be written only by clients other than schedulers. A
// scheduler is recognized by the name kube-scheduler, or because it also writes the condition PodScheduled.
func nominatedByOthers(managers []metav1.ManagedFieldsEntry) bool {
	written := false
	for _, m := range managers {
		if m.FieldsV1 == nil {
			continue
		}
		nominates, schedules := writes(m.FieldsV1.GetRawBytes())
		if nominates && (schedules || m.Manager == "kube-scheduler") {
			return false
		}
		written = written || nominates
	}
	return written
}

// writes reports which of the two fields of a pod's status are in the set of fields.
func writes(fields []byte) (nominatedNodeName, podScheduled bool) {
	var set struct {
		Status map[string]json.RawMessage `json:"f:status"`
	}
	if json.Unmarshal(fields, &set) != nil {
		return false, false
	}
	_, nominatedNodeName = set.Status["f:nominatedNodeName"]
	var conditions map[string]json.RawMessage
	if json.Unmarshal(set.Status["f:conditions"], &conditions) != nil {
		return nominatedNodeName, false
	}
	for key := range conditions {
		var condition struct{ Type corev1.PodConditionType }
		if name, ok := strings.CutPrefix(key, "k:"); ok && json.Unmarshal([]byte(name), &condition) == nil && condition.Type == corev1.PodScheduled {
			podScheduled = true
		}
	}
	return nominatedNodeName, podScheduled
}
