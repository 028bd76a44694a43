package resourceclaims_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/policies/resourceclaims"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

const leastWaste = "scoringStrategy: {type: LeastWaste, driver: gpu.example.com, modelAttribute: model}"

func build(t policytest.T, config string) policy.Policy {
	t.Helper()
	return policytest.Build(t, resourceclaims.Type(), config)
}

// objects is a cluster with two nodes of two GPUs each, of which claims have parts.
func objects(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile("testdata/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

const nodes = "[{metadata: {name: a}}, {metadata: {name: b}}, {metadata: {name: c}}]"

// claiming returns a pod in the namespace default with these claims.
func claiming(names ...string) *corev1.Pod {
	pod := policytest.Pods("{metadata: {name: new}, spec: {containers: [{name: main}]}}")[0]
	for _, name := range names {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimName: &name})
	}
	return pod
}

// view has the nodes and the objects.
func view(t testing.TB) *snapshot.View {
	var b snapshot.Builder
	for _, n := range policytest.Nodes(nodes) {
		b.SetNode(n)
	}
	policytest.Devices(objects(t))(&b)
	return b.View()
}

// gpuWorld is a cluster whose nodes have GPUs that pods share: with 40 GiB if their model is A100,
// and else with 16.
type gpuWorld struct {
	snapshot.Builder
}

func newGPUWorld() *gpuWorld {
	w := new(gpuWorld)
	w.class("gpu", `device.driver == "gpu.example.com"`)
	return w
}

func (w *gpuWorld) class(name, selector string) {
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: selector}}}
	w.SetDeviceClass(class)
}

// node adds a node with this many GPUs, the last first in the order of devices if reversed.
func (w *gpuWorld) node(name, model string, count int, reversed bool) {
	cpu := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi")}
	w.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: corev1.NodeStatus{Capacity: cpu, Allocatable: cpu}})
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + model + fmt.Sprint(count))}}
	s.Spec = resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, ResourceSliceCount: 1}}
	size := resource.MustParse("16Gi")
	if model == "A100" {
		size = resource.MustParse("40Gi")
	}
	for i := range count {
		uuid := fmt.Sprint(name, "-", i)
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name: fmt.Sprint("gpu-", i), AllowMultipleAllocations: new(true),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}, "uuid": {StringValue: &uuid}, "index": {IntValue: new(int64(i))}},
			Capacity:   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: size}},
		})
	}
	if reversed {
		slices.Reverse(s.Spec.Devices)
	}
	w.SetResourceSlice(s)
}

// claim returns a claim for this many GPUs, each with this many GiB: 0 for all of it.
func (w *gpuWorld) claim(name string, count, memory int64, selectors ...string) *resourcev1.ResourceClaim {
	exact := &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count}
	if memory > 0 {
		exact.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": *resource.NewQuantity(memory<<30, resource.BinarySI)}}
	}
	for _, s := range selectors {
		exact.Selectors = append(exact.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: s}})
	}
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: exact}}
	return c
}

// allocated is the claim with a share of each of the GPUs.
func allocated(c *resourcev1.ResourceClaim, node string, memory int64, gpus ...int) *resourcev1.ResourceClaim {
	c = c.DeepCopy()
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, gpu := range gpus {
		share := types.UID(fmt.Sprint(c.Name, "-", gpu))
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{
			Request: "r", Driver: "gpu.example.com", Pool: node, Device: fmt.Sprint("gpu-", gpu), ShareID: &share,
			ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{"memory": *resource.NewQuantity(memory<<30, resource.BinarySI)},
		})
	}
	return c
}

// come adds a pod with the claim.
func (w *gpuWorld) come(c *resourcev1.ResourceClaim, node string) *corev1.Pod {
	pod := claiming(c.Name)
	pod.Name, pod.UID, pod.Spec.NodeName = c.Name, types.UID(c.Name), node
	w.SetResourceClaim(c)
	w.SetPod(pod)
	return pod
}

func scores(t testing.TB, p policy.Policy, pod *corev1.Pod, view *snapshot.View) []int64 {
	t.Helper()
	c := policytest.Prepare[policy.Score](t, p, pod, view)
	var all []int64
	for n := range view.All() {
		all = append(all, c.Score(n))
	}
	return all
}

// scoresWhereAllocated fails the test unless the pod has a score where the allocator gives its
// claim something, and returns what that is.
func scoresWhereAllocated(
	t *testing.T, p policy.Policy, allocator *firstfit.Predictor, pod *corev1.Pod, view *snapshot.View,
) (found []resourcev1.AllocationResult) {
	t.Helper()
	request, err := allocator.Request(pod, view)
	if err != nil {
		t.Fatal(err)
	}
	c := policytest.Prepare[policy.Score](t, p, pod, view)
	for n := range view.All() {
		results, err := allocator.Allocate(request, n)
		if err != nil {
			t.Fatal(err)
		}
		if score := c.Score(n); (score == policy.NoOpinion) != (results == nil) {
			t.Errorf("pod %s: the score of %s is %d, and the allocator gives %v", pod.Name, n.Name, score, results)
		}
		found = append(found, results...)
	}
	return found
}

// scoreAll sets the scores of the rows: together, if the policy can, or one by one.
func scoreAll(cycle policy.Score, view *snapshot.View, rows []int32, all []int64) {
	if together, ok := cycle.(policy.ScoreRows); ok {
		together.ScoreRows(rows, all)
		cycle.(policy.NormalizeScore).NormalizeScore(all)
	} else {
		for i, row := range rows {
			all[i] = cycle.Score(view.At(int(row)))
		}
	}
}
