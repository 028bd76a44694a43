package cluster_test

import (
	"fmt"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"outboard.dev/outboard/internal/cluster"
)

const (
	memoryDevices = 8 // of each node
	memoryClaims  = 40000
	memoryDriver  = "gpu.nvidia.com"
)

// managed is what the API server keeps about who has written an object.
func managed(manager, kind string) []metav1.ManagedFieldsEntry {
	fields := fmt.Sprintf(`{"f:metadata":{"f:ownerReferences":{".":{},"k:{\"uid\":\"00000000-0000-0000-0000-000000000000\"}":{}}},"f:spec":{"f:devices":{"f:requests":{}}},"f:kind":%q}`, kind)
	return []metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "resource.k8s.io/v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields), Time: new(metav1.NewTime(time.Unix(1700000000, 0)))}}
}

func meta(namespace, name, owner, ownerKind string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(fmt.Sprintf("%.36s", name+"-0000-0000-0000-000000000000-000000000000")), ResourceVersion: "1000000", Generation: 1, CreationTimestamp: metav1.NewTime(time.Unix(1700000000, 0))}
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: ownerKind, Name: owner, UID: types.UID(owner + "-0000-0000-0000-000000000000"), Controller: new(true)}}
	m.ManagedFields = managed("manager", ownerKind)
	return m
}

// exampleSlice is what NVIDIA's driver publishes of a node, with GPUs that are not divided and can be shared.
func exampleSlice(i int) *resourcev1.ResourceSlice {
	node := cluster.ExampleNode(i).Name
	s := &resourcev1.ResourceSlice{ObjectMeta: meta("", fmt.Sprint(node, "-", memoryDriver, "-x7k2p"), node, "Node")}
	s.Spec = resourcev1.ResourceSliceSpec{Driver: memoryDriver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}}
	text := func(t string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{StringValue: &t} }
	version := func(t string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{VersionValue: &t} }
	for gpu := range memoryDevices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name: fmt.Sprint("gpu-", gpu), AllowMultipleAllocations: new(true),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"productName": text("NVIDIA A100-SXM4-40GB"), "uuid": text(fmt.Sprintf("GPU-%08d-0000-0000-0000-%012d", i, gpu)), "type": text("gpu"), "brand": text("Nvidia"), "architecture": text("Ampere"),
				"cudaComputeCapability": version("8.0.0"), "cudaDriverVersion": version("13.0.0"), "driverVersion": version("580.65.6"), "addressingMode": text("HMM"),
				"resource.kubernetes.io/pciBusID": text(fmt.Sprintf("0000:%02x:00.0", gpu)), "resource.kubernetes.io/pcieRoot": text(fmt.Sprint("pci0000:0", gpu/2)),
			},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("40Gi")}},
		})
	}
	return s
}

// exampleClaim is a claim for a quarter of a GPU, which is allocated.
func exampleClaim(i int) *resourcev1.ResourceClaim {
	pod, node := fmt.Sprintf("service-%d-7d4b9c6f58-%05x", i%1500, i), cluster.ExampleNode(i%memoryNodes).Name
	c := &resourcev1.ResourceClaim{ObjectMeta: meta("default", pod+"-gpu-q8zk4", pod, "Pod")}
	c.Annotations = map[string]string{"resource.kubernetes.io/pod-claim-name": "gpu"}
	c.Finalizers = []string{resourcev1.Finalizer}
	amount := map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("10Gi")}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: memoryDriver, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1, Capacity: &resourcev1.CapacityRequirements{Requests: amount}}}}
	share := types.UID(fmt.Sprintf("%08d-0000-0000-0000-000000000000", i))
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
		Request: "gpu", Driver: memoryDriver, Pool: node, Device: fmt.Sprint("gpu-", i/memoryNodes%memoryDevices), ShareID: &share, ConsumedCapacity: amount,
	}}}}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod, UID: types.UID(pod)}}
	return c
}

// sendDevices sends the objects of Dynamic Resource Allocation, or none.
func (c largeCluster) sendDevices(kind string, end metav1.ObjectMeta, send func(watch.EventType, k8sruntime.Object)) {
	switch kind {
	case "resourceslices":
		for i := range memoryNodes {
			if c.devices {
				send(watch.Added, exampleSlice(i))
			}
		}
		send(watch.Bookmark, &resourcev1.ResourceSlice{ObjectMeta: end})
	case "resourceclaims":
		for i := range memoryClaims {
			if c.devices {
				send(watch.Added, exampleClaim(i))
			}
		}
		send(watch.Bookmark, &resourcev1.ResourceClaim{ObjectMeta: end})
	case "deviceclasses":
		send(watch.Bookmark, &resourcev1.DeviceClass{ObjectMeta: end})
	case "devicetaintrules":
		send(watch.Bookmark, &resourcev1.DeviceTaintRule{ObjectMeta: end})
	}
}
