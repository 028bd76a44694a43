package gpumemory_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// A pod is bound after the pods of its size with earlier allocations of another GPU that are not bound
// yet, and after no others: also if it has its own allocation already.
func TestHeldAllocationKeepsItsTurn(t *testing.T) {
	p := policytest.Build(t, gpumemory.Type(), `{}`)
	w := &world{node: gpuNode("n", 2, 16)}
	for i, want := range []string{"[]", "[uid-first]"} { // of different GPUs
		pod := gpuPod([]string{"first", "second"}[i], 10, 0)
		allocation, _ := w.reserve(p, pod)
		expect(t, "a new pod comes after", fmt.Sprint(allocation.After), want)
		w.allocation(t, p, pod)
	}
	small := gpuPod("small", 6, 0) // of another size
	w.allocation(t, p, small)
	for name, want := range map[string]string{"first": "[]", "second": "[uid-first]", "small": "[]"} {
		pod := gpuPod(name, 10, 0)
		if name == "small" {
			pod = small
		}
		after, verdict := p.(policy.AllocationValidator).ValidateAllocation(policy.ReserveRequest{
			Pod: pod, Node: w.snapshot(), Ledger: w.ledger, At: w.ledger.Pod(pod.UID).At,
		})
		if !verdict.Fits() {
			t.Errorf("%s: %s", name, policytest.Says(verdict))
		}
		expect(t, name+" comes after", fmt.Sprint(after), want)
	}
	for _, tt := range []struct {
		node *snapshot.Node
		want string
	}{
		{w.snapshot().With(gpuPod("first", 10, 0)), "[uid-first]"}, // as a pod that is nominated to the node
		{w.snapshot().With(placed("first", 10, "0")), "[]"},
	} {
		after, _ := p.(policy.AllocationValidator).ValidateAllocation(policy.ReserveRequest{
			Pod: gpuPod("second", 10, 0), Node: tt.node, Ledger: w.ledger, At: w.ledger.Pod("uid-second").At,
		})
		expect(t, "with the first on the node, the second comes after", fmt.Sprint(after), tt.want)
	}
}

// A pod with whole GPUs waits for no other: the order of the Bindings does not change its annotations. Nor does a pod that requests none.
func TestHeldAllocationOfWholeGPUs(t *testing.T) {
	p := policytest.Build(t, gpumemory.Type(), `{}`)
	w := &world{node: gpuNode("n", 3, 16)}
	w.allocation(t, p, gpuPod("sharing", 16, 0))
	w.allocation(t, p, gpuPod("first", 0, 1))
	second := gpuPod("second", 0, 1)
	w.allocation(t, p, second)
	for _, pod := range []*corev1.Pod{second, gpuPod("none", 0, 0)} {
		ask := policy.ReserveRequest{Pod: pod, Node: w.snapshot(), Ledger: w.ledger}
		if held := w.ledger.Pod(pod.UID); held != nil {
			ask.At = held.At
		}
		after, verdict := p.(policy.AllocationValidator).ValidateAllocation(ask)
		if len(after) > 0 || !verdict.Fits() {
			t.Errorf("%s comes after %v: %s", pod.Name, after, policytest.Says(verdict))
		}
	}
}

// A pod's own allocation is not counted against it, and cannot be used without the device plugin.
func TestOwnAllocation(t *testing.T) {
	p := build(t, `{}`)
	w := &world{node: gpuNode("n", 1, 16)}
	pod, other := gpuPod("p", 10, 0), gpuPod("other", 2, 0)
	w.allocation(t, p, pod)
	score := func(pod *corev1.Pod) int64 {
		return policytest.Prepare[policy.Score](t, p, pod, new(snapshot.View)).Score(w.snapshot())
	}
	expect(t, "scores", fmt.Sprint(score(pod), score(other)), "62 75")
	ask := policy.ReserveRequest{Pod: pod, Node: w.snapshot(), Ledger: w.ledger, At: w.ledger.Pod(pod.UID).At}
	_, verdict := p.(policy.AllocationValidator).ValidateAllocation(ask)
	expect(t, "the allocation", policytest.Says(verdict), "fits")
	w.node.Status.Allocatable = list(0, 1)
	ask.Node = w.snapshot()
	_, verdict = p.(policy.AllocationValidator).ValidateAllocation(ask)
	expect(t, "the allocation without the device plugin", policytest.Says(verdict), "UnusableAllocation")
	expect(t, "the pod without the device plugin", policytest.Says(filter(t, p, pod, w.snapshot())), "DevicePluginDown!")
}
