package snapshot

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxResourceClaim is the limit of a trimmed claim, in bytes, by [SizeOf]: anybody may write claims,
// and only drivers and administrators ResourceSlices and DeviceClasses.
const maxResourceClaim = 8 << 10

// maxReservedFor is how many consumers of a claim are kept: explanations name them.
const maxReservedFor = 4

// identityOf returns the part of the metadata that is read of the objects of Dynamic Resource
// Allocation.
func identityOf(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion, Generation: meta.Generation, CreationTimestamp: meta.CreationTimestamp}
}

// TrimResourceSlice removes, in place, what no allocation can depend on.
func TrimResourceSlice(s *resourcev1.ResourceSlice) { s.ObjectMeta = identityOf(&s.ObjectMeta) }

// TrimResourceClaim removes, in place, what no allocation can depend on: configuration for drivers,
// the status of devices, tolerations of what is allocated, and most consumers. Of a claim that is
// too large it keeps which devices are allocated, as if the claim had them as a whole:
// [IsReducedClaim].
func TrimResourceClaim(c *resourcev1.ResourceClaim) {
	owner := metav1.GetControllerOfNoCopy(c)
	c.ObjectMeta = identityOf(&c.ObjectMeta)
	if owner != nil {
		c.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	c.Spec.Devices.Config = nil
	c.Status.Devices = nil
	if len(c.Status.ReservedFor) > maxReservedFor {
		c.Status.ReservedFor = append([]resourcev1.ResourceClaimConsumerReference(nil), c.Status.ReservedFor[:maxReservedFor]...)
	}
	var results []resourcev1.DeviceRequestAllocationResult
	if a := c.Status.Allocation; a != nil {
		results = make([]resourcev1.DeviceRequestAllocationResult, len(a.Devices.Results))
		for i, r := range a.Devices.Results {
			results[i] = resourcev1.DeviceRequestAllocationResult{Request: r.Request, Driver: r.Driver, Pool: r.Pool, Device: r.Device, AdminAccess: r.AdminAccess, ShareID: r.ShareID, ConsumedCapacity: r.ConsumedCapacity}
		}
		c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: a.NodeSelector}
		c.Status.Allocation.Devices.Results = results
	}
	if SizeOf(c) <= maxResourceClaim {
		return
	}
	c.Spec = resourcev1.ResourceClaimSpec{}
	for i := range results {
		results[i].ShareID, results[i].ConsumedCapacity = nil, nil
	}
	if c.Status.Allocation != nil {
		c.Status.Allocation.NodeSelector = nil
	}
}

// IsReducedClaim reports whether TrimResourceClaim has removed the requests of the claim, which the
// API server requires.
func IsReducedClaim(c *resourcev1.ResourceClaim) bool { return len(c.Spec.Devices.Requests) == 0 }

// TrimDeviceClass removes, in place, what no allocation can depend on.
func TrimDeviceClass(c *resourcev1.DeviceClass) {
	c.ObjectMeta = identityOf(&c.ObjectMeta)
	c.Spec.Config = nil
}

// TrimDeviceTaintRule removes, in place, what no allocation can depend on.
func TrimDeviceTaintRule(r *resourcev1.DeviceTaintRule) {
	r.ObjectMeta = identityOf(&r.ObjectMeta)
	r.Status = resourcev1.DeviceTaintRuleStatus{}
}
