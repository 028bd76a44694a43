package theater

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
)

// GPUDriver is the driver, and the class, of the devices.
const GPUDriver = "gpu.example.com"

// DeviceNodes creates nodes with two GPUs each, which have 40 GiB and are shared by claims.
func (th *Theater) DeviceNodes(names ...string) {
	th.T.Helper()
	th.GPUClass()
	for _, node := range names {
		th.DeviceNode(node, "4", "40Gi", "40Gi")
	}
}

// GPUClass creates the class of the devices.
func (th *Theater) GPUClass() {
	th.T.Helper()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: GPUDriver}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", GPUDriver)}}}
	if _, err := th.Client.ResourceV1().DeviceClasses().Create(th.Ctx, class, metav1.CreateOptions{}); err != nil {
		th.T.Fatal(err)
	}
}

// DeviceNode creates a node that has GPUs with these memories, which are shared by claims.
func (th *Theater) DeviceNode(node, cpu string, memories ...string) {
	th.T.Helper()
	shared := true
	th.Nodes(controlplane.NodeSpec{Name: node, CPU: cpu})
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "gpus-of-" + node}, Spec: resourcev1.ResourceSliceSpec{
		Driver: GPUDriver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
	}}
	for i, memory := range memories {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{
			Name: fmt.Sprintf("gpu-%d", i), AllowMultipleAllocations: &shared,
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(memory)}},
		})
	}
	if _, err := th.Client.ResourceV1().ResourceSlices().Create(th.Ctx, slice, metav1.CreateOptions{}); err != nil {
		th.T.Fatal(err)
	}
}

// Claiming creates a claim of this much memory of each of several GPUs, and returns a pod with it.
func (th *Theater) Claiming(name, memory string, gpus int64) *corev1.Pod {
	th.T.Helper()
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: GPUDriver, Count: gpus,
		Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)}}}}}
	if _, err := th.Client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Create(th.Ctx, claim, metav1.CreateOptions{}); err != nil {
		th.T.Fatal(err)
	}
	return WithClaim(name, name)
}

// WithClaim returns a pod that has the claim.
func WithClaim(name, claim string) *corev1.Pod {
	pod := controlplane.PodSpec{Name: name, CPU: "100m"}.Pod()
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	return pod
}
