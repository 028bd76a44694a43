package schedplugin

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// claimOf10Gi is a claim of 10Gi of a GPU, which it has on the node unless that is "".
func claimOf10Gi(name, node string) *resourcev1.ResourceClaim {
	amount := map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("10Gi")}
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1, Capacity: &resourcev1.CapacityRequirements{Requests: amount},
	}}}
	if node != "" {
		c.Status.Allocation = &resourcev1.AllocationResult{}
		c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{
			Request: "r", Driver: "gpu.nvidia.com", Pool: node, Device: "gpu-0", ShareID: new(types.UID("share")), ConsumedCapacity: amount,
		}}
	}
	return c
}

// The policy ResourceClaims scores nodes inside kube-scheduler, by the devices and claims that kube-scheduler's informers show.
func TestScoresForClaims(t *testing.T) {
	for _, strategy := range []string{"BinPack", "LeastWaste"} {
		class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
		class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.nvidia.com"`}}}
		objects := []runtime.Object{class, claimOf10Gi("held", "n1"), claimOf10Gi("new", "")}
		for i := range 2 {
			node := fmt.Sprint("n", i)
			slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID(node)}}
			slice.Spec = resourcev1.ResourceSliceSpec{Driver: "gpu.nvidia.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1}}
			for gpu := range 2 {
				slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{
					Name: fmt.Sprint("gpu-", gpu), AllowMultipleAllocations: new(true),
					Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("40Gi")}},
				})
			}
			objects = append(objects, slice)
		}
		s := schedule(t, 2, `profiles: [{policies: [{type: ResourceClaims, config: {scoringStrategy: {type: `+strategy+`}}}]}]`, objects...)
		pod := podNamed("new", nil)
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("new")}}
		better := func(node, than string) bool {
			_, scores := s.attempt(pod)
			return scores[node] > scores[than]
		}
		if !better("n1", "n0") {
			t.Errorf("%s: the node whose GPU is in use is not better", strategy)
		}
		if _, err := s.client.ResourceV1().ResourceClaims("default").UpdateStatus(t.Context(), claimOf10Gi("held", "n0"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.eventually(strategy+": the other node is better", func() bool { return better("n0", "n1") })
	}
}

// waited is a context that calls the function when somebody waits for its end.
type waited struct {
	context.Context
	once sync.Once
	call func()
}

func (w *waited) Done() <-chan struct{} {
	w.once.Do(w.call)
	return w.Context.Done()
}

// A claim that the View does not have yet is awaited.
func TestClaimsAreAwaited(t *testing.T) {
	s := schedule(t, 1, `profiles: [{policies: [{type: ResourceClaims}]}]`)
	pod := podNamed("p", nil)
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("late")}}
	ctx, st := &waited{Context: t.Context(), call: func() {
		if _, err := s.client.ResourceV1().ResourceClaims("default").Create(t.Context(), claimOf10Gi("late", ""), metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	}}, &state{}
	s.PreFilter(ctx, st, pod, []fwk.NodeInfo{s.infos[0]})
	if c, err := cycleOf(st); err != nil || c.view.ResourceClaim("default", "late") == nil {
		t.Errorf("the claim is not in the view (%v)", err)
	}
}
