package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
)

// The example does what its README says, and a healed node gets pods again.
func TestDegradedHardwareExample(t *testing.T) {
	th := open(t)
	play := th.play("degraded-hardware")
	waits := th.placeAll(play, map[string]string{"train": "gpu-3", "burn-in": "gpu-1", "web": "cpu-3"})["train-large"]
	for _, want := range []string{
		"1 node(s) have a condition that indicates degraded hardware", "1 node(s) have a signal that indicates degraded hardware",
	} {
		if !strings.Contains(waits.Waiting, want) {
			t.Errorf("train-large waits because of %q, want %q", waits.Waiting, want)
		}
	}
	// A pod for which kube-scheduler does not exclude the nodes without GPUs.
	th.gated(play.Outboard, controlplane.PodSpec{Name: "gated"})
	for _, test := range []struct{ pod, node, want string }{
		{"train-large", "gpu-1", "rule xid: rejects (condition XidCriticalError is True, Xid79)"},
		{"train-large", "gpu-2", "rule hot: rejects (signal gpu-hot is 1 since "},
		{"gated", "cpu-1", "rule deadlock: rejects (condition KernelDeadlock is True, DockerHung)"},
		{"gated", "cpu-2", `rule suspect: subtracts 50 points (label example.com/suspect is "")`},
	} {
		if notes := th.notes(play.Outboard, test.pod, test.node); !strings.Contains(notes, test.want) {
			t.Errorf("the explanation of %s on %s is %q, want %q", test.pod, test.node, notes, test.want)
		}
	}
	th.condition("gpu-1", "XidCriticalError", corev1.ConditionFalse)
	if healed := th.awaitBound(waits.Pod); healed.Spec.NodeName != "gpu-1" {
		t.Errorf("%s is on %s, and gpu-1 is healed", healed.Name, healed.Spec.NodeName)
	}
}

// condition sets a condition of the node, as node-problem-detector does.
func (th *theater) condition(node, kind string, status corev1.ConditionStatus) {
	th.t.Helper()
	th.changeStatus(node, func(s *corev1.NodeStatus) {
		for i := range s.Conditions {
			if string(s.Conditions[i].Type) == kind {
				s.Conditions[i].Status, s.Conditions[i].LastTransitionTime = status, metav1.Now()
			}
		}
	})
}
