// Package mig makes nodes whose GPUs are divided by MIG, with the ResourceSlices of NVIDIA's DRA driver, for tests.
package mig

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Profile is a MIG profile of the NVIDIA A100 40GB, as in NVIDIA's MIG User Guide, with what NVIDIA's DRA driver publishes of it.
type Profile struct {
	Name                                         string
	ID                                           int
	memory, processors, copies, decoders, others int64 // memory in MiB; others: of JPEG and of optical flow
	slices                                       int
	Starts                                       []int // the memory slices at which a partition can begin
}

// A100 are all profiles, in order of size.
var A100 = []Profile{
	{"1g.5gb", 19, 4864, 14, 1, 0, 0, 1, []int{0, 1, 2, 3, 4, 5, 6}},
	{"1g.10gb", 15, 9856, 14, 1, 1, 0, 2, []int{0, 2, 4, 6}},
	{"2g.10gb", 14, 9856, 28, 2, 1, 0, 2, []int{0, 2, 4}},
	{"3g.20gb", 9, 19968, 42, 3, 2, 0, 4, []int{0, 4}},
	{"4g.20gb", 5, 19968, 56, 4, 2, 0, 4, []int{0}},
	{"7g.40gb", 0, 40192, 98, 7, 5, 1, 8, []int{0}},
}

// Counters returns what a partition of the profile uses if it begins at the memory slice.
func (p *Profile) Counters(start int) map[string]resourcev1.Counter {
	all := map[string]resourcev1.Counter{}
	for name, value := range map[string]int64{
		"memory": p.memory << 20, "multiprocessors": p.processors, "copy-engines": p.copies, "decoders": p.decoders, "encoders": 0, "jpeg-engines": p.others, "ofa-engines": p.others,
	} {
		all[name] = resourcev1.Counter{Value: *resource.NewQuantity(value, resource.BinarySI)}
	}
	for i := range p.slices {
		all[fmt.Sprint("memory-slice-", start+i)] = resourcev1.Counter{Value: resource.MustParse("1")}
	}
	return all
}

// Devices returns the devices of a GPU in the order in which the driver publishes them: by name.
func Devices(gpu int) []resourcev1.Device {
	product, mig, whole := "NVIDIA A100-SXM4-40GB", "mig", "gpu"
	set := fmt.Sprintf("gpu-%d-counter-set", gpu)
	byName := map[string]resourcev1.Device{}
	add := func(name, kind, profile string, counters map[string]resourcev1.Counter) {
		d := resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"type": {StringValue: &kind}, "productName": {StringValue: &product}}}
		if profile != "" {
			d.Attributes["profile"] = resourcev1.DeviceAttribute{StringValue: &profile}
		}
		d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: counters["memory"].Value}}
		d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: set, Counters: counters}}
		byName[name] = d
	}
	for _, p := range A100 {
		for _, start := range p.Starts {
			name := fmt.Sprintf("gpu-%d-mig-%s-%d-%d", gpu, p.Name[:1]+"g"+p.Name[3:], p.ID, start)
			add(name, mig, p.Name, p.Counters(start))
		}
	}
	add(fmt.Sprintf("gpu-%d", gpu), whole, "", A100[5].Counters(0))
	var all []resourcev1.Device
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, byName[name])
	}
	return all
}

// Node returns a node and its ResourceSlices, as the driver publishes them on Kubernetes 1.35 and later: the counters of all GPUs, and the
// devices of each.
func Node(name string, gpus int) (*corev1.Node, []*resourcev1.ResourceSlice) {
	cpu := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: corev1.NodeStatus{Capacity: cpu, Allocatable: cpu}}
	published := make([]*resourcev1.ResourceSlice, gpus+1)
	for i := range published {
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-gpu.nvidia.com-%d", name, i), UID: types.UID(fmt.Sprint(name, i))}}
		s.Spec = resourcev1.ResourceSliceSpec{Driver: "gpu.nvidia.com", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: int64(gpus) + 1}}
		if i == 0 {
			for gpu := range gpus {
				s.Spec.SharedCounters = append(s.Spec.SharedCounters, resourcev1.CounterSet{Name: fmt.Sprintf("gpu-%d-counter-set", gpu), Counters: A100[5].Counters(0)})
			}
		} else {
			s.Spec.Devices = Devices(i - 1)
		}
		published[i] = s
	}
	return node, published
}

// Class is the DeviceClass of claims. It selects the devices of the driver.
const Class = "mig"

// DeviceClass returns it.
func DeviceClass() *resourcev1.DeviceClass {
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: Class}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.nvidia.com"`}}}
	return class
}

// Claim requests a partition of the profile, or a GPU that is not divided.
func Claim(name, profile string) *resourcev1.ResourceClaim {
	selector := fmt.Sprintf(`device.attributes["gpu.nvidia.com"].type == "mig" && device.attributes["gpu.nvidia.com"].profile == %q`, profile)
	if profile == "" {
		selector = `device.attributes["gpu.nvidia.com"].type == "gpu"`
	}
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: Class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: selector}}},
	}}}
	return c
}
