package devices_test

import (
	"testing"

	"outboard.dev/outboard/policies/devices"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
)

// A pod cannot use its claim of a unit that the node no longer lists: it fits only if there are
// other units.
func TestHeldClaimOfAUnitThatIsGone(t *testing.T) {
	p := policytest.Build(t, devices.Type(), named)
	pod := asking("p", 1)
	for _, tt := range []struct{ name, units, valid, fits string }{
		{"there", "a,b", "fits", "fits"},
		{"there, and nothing else", "a", "fits", "fits"},
		{"gone", "b", "UnusableClaim", "fits"},
		{"of size 0 now", "a=0,b", "UnusableClaim", "fits"},
		{"without the device plugin", "a,b", "UnusableClaim", "DevicePluginDown!"},
		{"gone, and so are the others", "", "UnusableClaim", "NoDevices!"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &world{node: naming("a,b", "")}
			if unit := w.claim(t, p, pod).Amounts[0].Unit; unit != "a" {
				t.Fatalf("claimed %s", unit)
			}
			w.node = naming(tt.units, "")
			if tt.name == "without the device plugin" {
				w.node.Status.Capacity, w.node.Status.Allocatable = list(2), list(0)
			}
			_, verdict := p.(policy.ClaimValidator).ValidateClaim(policy.ReserveRequest{Pod: pod, Node: w.snapshot(), Ledger: w.ledger})
			expect(t, "the claim", policytest.Says(verdict), tt.valid)
			expect(t, "the pod", w.filter(t, p, pod), tt.fits)
		})
	}
}
