package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

// A pod that was created with its node has no condition PodScheduled until a kubelet writes it.
func TestPodsCreatedWithTheirNode(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: metav1.Unix(100, 0)}, Spec: corev1.PodSpec{NodeName: "n"}}
	shared := trimmedPod(pod)
	trimPod(pod)
	for what, pod := range map[string]*corev1.Pod{"own watch": pod, "kube-scheduler's informers": shared} {
		if at, _ := snapshot.BoundBefore(pod); at.Unix() != 101 {
			t.Errorf("%s: bound before %s, want a second after the pod was created", what, at)
		}
	}
	waiting := trimmedPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: metav1.Unix(100, 0)}})
	if at, known := snapshot.BoundBefore(waiting); known {
		t.Errorf("a pod without a node was bound before %s", at)
	}
}
