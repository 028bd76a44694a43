package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/gpushare"
	"outboard.dev/outboard/internal/simulate"
)

const (
	gpuDriver  = "gpu.nvidia.com"
	modelLabel = "nvidia.com/gpu.product"
	// unit is the memory of a device for one unit of the trace, of which a GPU has 1000: a GPU has 16,000 MiB.
	unit = 16 << 20
)

// useClaims makes the GPUs of the nodes devices of a driver, and gives a ResourceClaimTemplate to each pod that requests GPUs. The order of
// devices and pools, and on which nodes another driver comes first, depends on the seed. Simulated nodes and pods keep the resources
// of gpushare, in which the allocation is measured; those of the API server have none.
func (t *trace) useClaims() error {
	random := rand.New(rand.NewPCG(t.seed, 0))
	t.devices = &simulate.Devices{Classes: []*resourcev1.DeviceClass{gpuClass()}}
	for _, n := range t.nodes {
		t.devices.Slices = append(t.devices.Slices, publish(n, random)...)
	}
	templates := map[string]*resourcev1.ResourceClaimTemplate{}
	t.mix = slices.Clone(t.mix)
	for i := range t.mix {
		pod := t.mix[i]
		if demand(pod) == 0 {
			continue
		}
		exactly, err := requestOf(pod)
		if err != nil {
			return err
		}
		key := exactly.String()
		template := templates[key]
		if template == nil {
			template = &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: fmt.Sprintf("gpu-%d", len(templates))}}
			template.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: exactly}}
			templates[key] = template
			t.devices.Templates = append(t.devices.Templates, template)
		}
		pod = pod.DeepCopy()
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template.Name}}
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		t.mix[i] = pod
	}
	return nil
}

func gpuClass() *resourcev1.DeviceClass {
	c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	c.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
		Expression: fmt.Sprintf("device.driver == %q && device.attributes[%q].type == \"gpu\"", gpuDriver, gpuDriver),
	}}}
	return c
}

// publish returns the ResourceSlices of the node: its GPUs in up to two pools, each in up to two slices, and on some nodes a network device
// of another driver, before or after them.
func publish(n *corev1.Node, random *rand.Rand) (all []*resourcev1.ResourceSlice) {
	count := n.Status.Capacity[gpushare.Count]
	var gpus []resourcev1.Device
	for _, i := range random.Perm(int(count.Value())) {
		gpus = append(gpus, gpu(i, n.Labels[modelLabel]))
	}
	at := len(gpus)
	if random.IntN(4) == 0 {
		at = random.IntN(len(gpus) + 1)
	}
	for _, devices := range [][]resourcev1.Device{gpus[:at], gpus[at:]} {
		if len(devices) > 0 {
			all = append(all, pool(n, gpuDriver, devices, random)...)
		}
	}
	if driver := random.IntN(16); driver < 2 {
		all = append(all, pool(n, []string{"dra.net", "nic.example.com"}[driver], []resourcev1.Device{{Name: "eth-1"}}, random)...)
	}
	return all
}

func gpu(i int, model string) resourcev1.Device {
	text := func(s string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{StringValue: &s} }
	return resourcev1.Device{
		Name: fmt.Sprint("gpu-", i), AllowMultipleAllocations: new(true),
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"type": text("gpu"), "productName": text(model)},
		Capacity:   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: memory(gpuUnits)}},
	}
}

// pool returns the slices of a pool with the devices.
func pool(n *corev1.Node, driver string, devices []resourcev1.Device, random *rand.Rand) (all []*resourcev1.ResourceSlice) {
	name, at := fmt.Sprintf("%08x-%s", random.Uint32(), n.Name), len(devices)
	if random.IntN(4) == 0 {
		at = random.IntN(len(devices) + 1)
	}
	for _, part := range [][]resourcev1.Device{devices[:at], devices[at:]} {
		if len(part) == 0 {
			continue
		}
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%08x-%s-%s", random.Uint32(), n.Name, driver)}}
		s.Spec = resourcev1.ResourceSliceSpec{Driver: driver, NodeName: &n.Name, Pool: resourcev1.ResourcePool{Name: name}, Devices: part}
		all = append(all, s)
	}
	for _, s := range all {
		s.Spec.Pool.ResourceSliceCount = int64(len(all))
	}
	return all
}

// gpuUnits is how many units a GPU of the trace has.
const gpuUnits = 1000

func memory(units int64) resource.Quantity {
	return *resource.NewQuantity(units*unit, resource.BinarySI)
}

// requestOf returns what the pod requests by resources, labels and annotations of gpushare: a share of a GPU, or whole GPUs.
func requestOf(pod *corev1.Pod) (*resourcev1.ExactDeviceRequest, error) {
	r := &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}
	if text, ok := pod.Labels[gpushare.Count]; ok {
		var err error
		if r.Count, err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, err
		}
	}
	if share := demand(pod) / r.Count; share < gpuUnits {
		r.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": memory(share)}}
	}
	if models := pod.Annotations["outboard.dev/gpu-models"]; models != "" {
		var quoted []string
		for model := range strings.SplitSeq(models, ",") {
			quoted = append(quoted, strconv.Quote(model))
		}
		r.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: fmt.Sprintf("device.attributes[%q].productName in [%s]", gpuDriver, strings.Join(quoted, ", ")),
		}}}
	}
	return r, nil
}

// createDevices creates the class and the slices.
func (p *play) createDevices(ctx context.Context) error {
	api := p.Client.ResourceV1()
	for _, class := range p.devices.Classes {
		if _, err := api.DeviceClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for _, s := range p.devices.Slices {
		if _, err := api.ResourceSlices().Create(ctx, s, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// createClaim creates the claim of the pod, as kube-controller-manager does, but with the name of the pod, and returns the pod with it. There is
// no kube-controller-manager here.
func (p *play) createClaim(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	pod = withoutGPUs(pod)
	if len(pod.Spec.ResourceClaims) == 0 {
		return pod, nil
	}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Spec: p.devices.Templates[p.template(pod)].Spec.Spec}
	if _, err := p.Client.ResourceV1().ResourceClaims(pod.Namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &pod.Name}}
	return pod, nil
}

// template returns the index of the template that the pod names.
func (p *play) template(pod *corev1.Pod) int {
	return slices.IndexFunc(p.devices.Templates, func(t *resourcev1.ResourceClaimTemplate) bool {
		return t.Name == *pod.Spec.ResourceClaims[0].ResourceClaimTemplateName
	})
}

// withoutGPUs returns the pod without what it requests of gpushare.
func withoutGPUs(like *corev1.Pod) *corev1.Pod {
	p := like.DeepCopy()
	p.Labels, p.Annotations = nil, nil
	for _, list := range []corev1.ResourceList{p.Spec.Containers[0].Resources.Requests, p.Spec.Containers[0].Resources.Limits} {
		delete(list, gpuMemory)
	}
	return p
}

// withoutGPUsOf returns the node without what gpushare reports of it.
func withoutGPUsOf(like *corev1.Node) *corev1.Node {
	n := like.DeepCopy()
	for _, list := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
		delete(list, gpuMemory)
		delete(list, gpushare.Count)
	}
	return n
}
