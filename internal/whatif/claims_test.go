package whatif_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/internal/whatif"
	"outboard.dev/outboard/snapshot"
)

// gpuNodes returns a cluster of nodes with three GPUs of 40 GiB, of which claims have random amounts, and a claim that requests this much of
// each of count GPUs.
func gpuNodes(random *rand.Rand, gib, count int64) *snapshot.Builder {
	b := new(snapshot.Builder)
	shared := true
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu", UID: "gpu"}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu"`}}}
	b.SetDeviceClass(class)
	for i := range 4 {
		name := fmt.Sprintf("n%d", i)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(fmt.Sprint(i)), "pods": resource.MustParse("10")} // n0 has no CPU
		b.SetNode(node)
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		slice.Spec = resourcev1.ResourceSliceSpec{Driver: "gpu", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, ResourceSliceCount: 1}}
		for j := range 3 {
			device := fmt.Sprintf("gpu-%d", j)
			slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: device, AllowMultipleAllocations: &shared,
				Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("40Gi")}}})
			used := random.Int64N(41)
			if i == 0 || used == 0 {
				continue
			}
			share, id := types.UID(fmt.Sprintf("%s-%s", name, device)), fmt.Sprintf("%s-%s", name, device)
			claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: id, UID: share}, Spec: claimOf(used, 1)}
			claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
				Request: "gpu", Driver: "gpu", Pool: name, Device: device, ShareID: &share,
				ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(fmt.Sprintf("%dGi", used))},
			}}}}
			b.SetResourceClaim(claim)
		}
		b.SetResourceSlice(slice)
	}
	b.SetResourceClaim(&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mine", UID: "mine"}, Spec: claimOf(gib, count)})
	return b
}

func claimOf(gib, count int64) resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
		Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(fmt.Sprintf("%dGi", gib))}},
	}}}}}
}

// The amount is the largest of all with which the allocator finds devices on a node where the pod fits otherwise.
func TestLessOfClaimIsTheLargestAmount(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	mine := "mine"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &mine}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}
	e := engineOf(t, members(t, "apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nserving: {insecure: true}\nprofiles:\n- policies:\n  - {type: ResourceClaims}\n"))
	changed, fitting := 0, 0
	for range 60 {
		const from = 40
		count := 1 + random.Int64N(3)
		b := gpuNodes(random, from, count)
		view := b.View()
		largest := int64(0)
		for gib := int64(1); gib <= from; gib++ {
			b.SetResourceClaim(&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mine", UID: "mine"}, Spec: claimOf(gib, count)})
			p, other := firstfit.New(), b.View()
			r, err := p.Request(pod, other)
			if err != nil {
				t.Fatal(err)
			}
			for n := range other.All() {
				if results, err := p.Allocate(r, n); err != nil {
					t.Fatal(err)
				} else if results != nil && n.Name != "n0" {
					largest = gib
				}
			}
		}
		found, err := whatif.FindClaims(t.Context(), whatif.Cluster{Engine: e, View: view}, pod)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case largest == from || largest == 0:
			fitting++
			if len(found) != 0 {
				t.Errorf("with %d GiB, it fits already, or never: %v", largest, found)
			}
		case len(found) != 1 || found[0].To.Value() != largest<<30 || found[0].Kind != whatif.Claim:
			t.Errorf("%v, want %d GiB", found, largest)
		default:
			changed++
		}
	}
	if changed < 20 || fitting < 3 {
		t.Errorf("%d changes, and %d pods that fit", changed, fitting)
	}
	small := whatif.Cluster{Engine: e, View: gpuNodes(random, 41, 1).View(), Budget: 60}
	if found, err := whatif.FindClaims(t.Context(), small, pod); err != nil || len(found) != 0 {
		t.Errorf("without the budget to ask about all nodes: %v (%v)", found, err)
	}
}
