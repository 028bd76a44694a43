package devices_test

import (
	"fmt"
	"testing"

	"outboard.dev/outboard/policies/devices"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
)

// A pod's own allocation is not counted against it, and cannot be used without the device plugin.
func TestOwnAllocation(t *testing.T) {
	p, pod := policytest.Build(t, devices.Type(), numbered), asking("p", 1)
	w := &world{node: counting(2)}
	w.allocation(t, p, pod)
	mine, other := prepare(t, p, pod).Score(w.snapshot()), prepare(t, p, asking("other", 1)).Score(w.snapshot())
	expect(t, "scores", fmt.Sprint(mine, other), "50 100")
	ask := policy.ReserveRequest{Pod: pod, Node: w.snapshot(), Ledger: w.ledger}
	_, verdict := p.(policy.AllocationValidator).ValidateAllocation(ask)
	expect(t, "the allocation", policytest.Says(verdict), "fits")
	w.node.Status.Capacity, w.node.Status.Allocatable = list(2), list(0)
	ask.Node = w.snapshot()
	_, verdict = p.(policy.AllocationValidator).ValidateAllocation(ask)
	expect(t, "the allocation without the device plugin", policytest.Says(verdict), "UnusableAllocation")
	expect(t, "the pod without the device plugin", w.filter(t, p, pod), "DevicePluginDown!")
}
