package firstfit

import (
	resourcev1 "k8s.io/api/resource/v1"
)

// maxParts and maxPartDevices bound Parts, so that the allocator needs fewer than maxSteps if each part gets the first devices that fit.
const maxParts, maxPartDevices = 16, 256

// Alternative is a number of devices that are requested, which differ, but are selected alike.
type Alternative struct {
	Count int
	// Alone requests one such device.
	Alone *Request
}

// Parts returns the requests of all claims in the order in which devices are allocated to them, each with its alternatives in order of
// preference. ok is false if they are more than that: if a device can be allocated or not because of which other devices are, if all devices
// are requested, or for administrative access.
func (r *Request) Parts() (parts [][]Alternative, ok bool) {
	devices := int64(0)
	for _, claim := range r.claims {
		if len(claim.Spec.Devices.Constraints) > 0 {
			return nil, false
		}
		most := int64(0)
		for i := range claim.Spec.Devices.Requests {
			request := &claim.Spec.Devices.Requests[i]
			part, count := []Alternative(nil), int64(0)
			for _, exact := range alternatives(request) {
				if exact.AllocationMode != resourcev1.DeviceAllocationModeExactCount || exact.Count < 1 || exact.Count > resourcev1.AllocationResultsMaxSize ||
					exact.AdminAccess != nil || len(exact.DerivedAttributes) > 0 {
					return nil, false
				}
				part, count = append(part, Alternative{int(exact.Count), r.alone(claim, exact)}), max(count, exact.Count)
			}
			parts, most = append(parts, part), most+count
			if len(part) == 0 {
				return nil, false
			}
		}
		devices += most
		if most > resourcev1.AllocationResultsMaxSize || devices > maxPartDevices || len(parts) > maxParts {
			return nil, false
		}
	}
	return parts, len(parts) > 0
}

func (r *Request) alone(claim *resourcev1.ResourceClaim, exact resourcev1.ExactDeviceRequest) *Request {
	exact.Count = 1
	one := &resourcev1.ResourceClaim{ObjectMeta: claim.ObjectMeta}
	one.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "one", Exactly: &exact}}
	return &Request{claims: []*resourcev1.ResourceClaim{one}, classes: r.classes, selectors: r.selectors, steps: maxSteps}
}
