package resourceclaims_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/policies/resourceclaims"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// migProfile is a MIG profile of the NVIDIA A100 40GB, as in NVIDIA's MIG User Guide, with what NVIDIA's DRA driver publishes of it.
type migProfile struct {
	name                                         string
	id                                           int
	memory, processors, copies, decoders, others int64 // memory in MiB; others: of JPEG and of optical flow
	slices                                       int
	starts                                       []int
}

var a100Profiles = []migProfile{
	{"1g.5gb", 19, 4864, 14, 1, 0, 0, 1, []int{0, 1, 2, 3, 4, 5, 6}},
	{"1g.10gb", 15, 9856, 14, 1, 1, 0, 2, []int{0, 2, 4, 6}},
	{"2g.10gb", 14, 9856, 28, 2, 1, 0, 2, []int{0, 2, 4}},
	{"3g.20gb", 9, 19968, 42, 3, 2, 0, 4, []int{0, 4}},
	{"4g.20gb", 5, 19968, 56, 4, 2, 0, 4, []int{0}},
	{"7g.40gb", 0, 40192, 98, 7, 5, 1, 8, []int{0}},
}

// counters returns what a partition of the profile uses if it begins at the memory slice.
func (p *migProfile) counters(start int) map[string]resourcev1.Counter {
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

// devices returns the devices of a GPU in the order in which the driver publishes them: by name.
func migDevices(gpu int) []resourcev1.Device {
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
	for _, p := range a100Profiles {
		for _, start := range p.starts {
			name := fmt.Sprintf("gpu-%d-mig-%s-%d-%d", gpu, p.name[:1]+"g"+p.name[3:], p.id, start)
			add(name, mig, p.name, p.counters(start))
		}
	}
	add(fmt.Sprintf("gpu-%d", gpu), whole, "", a100Profiles[5].counters(0))
	var all []resourcev1.Device
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, byName[name])
	}
	return all
}

// migNode returns a node and its ResourceSlices, as the driver publishes them on Kubernetes 1.35 and later: the counters of all GPUs, and the
// devices of each.
func migNode(name string, gpus int) (*corev1.Node, []*resourcev1.ResourceSlice) {
	cpu := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: corev1.NodeStatus{Capacity: cpu, Allocatable: cpu}}
	published := make([]*resourcev1.ResourceSlice, gpus+1)
	for i := range published {
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-gpu.nvidia.com-%d", name, i), UID: types.UID(fmt.Sprint(name, i))}}
		s.Spec = resourcev1.ResourceSliceSpec{Driver: "gpu.nvidia.com", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: int64(gpus) + 1}}
		if i == 0 {
			for gpu := range gpus {
				s.Spec.SharedCounters = append(s.Spec.SharedCounters, resourcev1.CounterSet{Name: fmt.Sprintf("gpu-%d-counter-set", gpu), Counters: a100Profiles[5].counters(0)})
			}
		} else {
			s.Spec.Devices = migDevices(i - 1)
		}
		published[i] = s
	}
	return node, published
}

// migClaim requests a partition of the profile, or a GPU that is not divided.
func migClaim(name, profile string) *resourcev1.ResourceClaim {
	selector := fmt.Sprintf(`device.attributes["gpu.nvidia.com"].type == "mig" && device.attributes["gpu.nvidia.com"].profile == %q`, profile)
	if profile == "" {
		selector = `device.attributes["gpu.nvidia.com"].type == "gpu"`
	}
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "mig", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: selector}}},
	}}}
	return c
}

// arithmetic is what the test knows of the GPUs of a node, apart from the policy.
type arithmetic struct {
	placement.Partitioned
	names []string // of the devices
}

func newArithmetic(gpus int) *arithmetic {
	a := &arithmetic{}
	names := slices.Sorted(maps.Keys(a100Profiles[5].counters(0)))
	amounts := func(counters map[string]resourcev1.Counter) (all []int64) {
		for _, name := range names {
			counter := counters[name]
			all = append(all, counter.Value.Value())
		}
		return all
	}
	var partitions []placement.Partition
	index := map[string]int{}
	for profile, p := range a100Profiles {
		for _, start := range p.starts {
			index[fmt.Sprint(p.name, start)] = len(partitions)
			partitions = append(partitions, placement.Partition{Profile: profile, Uses: amounts(p.counters(start))})
		}
	}
	a.Layout = placement.NewLayout(amounts(a100Profiles[5].counters(0)), partitions)
	for gpu := range gpus {
		for _, d := range migDevices(gpu) {
			profile, start := "7g.40gb", 0 // the GPU that is not divided uses the same
			if p := d.Attributes["profile"].StringValue; p != nil {
				profile = *p
				fmt.Sscanf(d.Name[len(d.Name)-1:], "%d", &start)
			}
			a.Devices = append(a.Devices, placement.Device{GPU: gpu, Partition: index[fmt.Sprint(profile, start)]})
			a.names = append(a.names, d.Name)
		}
	}
	a.GPUs = make([]placement.State, gpus)
	return a
}

// Nodes with the slices of NVIDIA's driver are ranked as the arithmetic ranks them, which is compared with brute force and the optimum in
// internal/placement; and its first partition is the one that kube-scheduler's allocator takes.
func TestPartitionsAreRankedByTheArithmetic(t *testing.T) {
	const gpus = 2
	random := rand.New(rand.NewPCG(5, 6))
	var b snapshot.Builder
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "mig"}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.nvidia.com"`}}}
	b.SetDeviceClass(class)
	known := map[string]*arithmetic{}
	for i := range 5 {
		node, published := migNode(fmt.Sprint("node-", i), gpus)
		b.SetNode(node)
		known[node.Name] = newArithmetic(gpus)
		for _, s := range published {
			b.SetResourceSlice(s)
		}
	}
	p, predictor := policytest.Build(t, resourceclaims.Type(), "scoringStrategy: {type: LeastWaste}"), firstfit.New()
	var arrived []int // profiles
	type running struct {
		pod   *corev1.Pod
		claim *resourcev1.ResourceClaim
		node  string
	}
	var all []running
	choices, learned := 0, 0
	for step := range 300 {
		profile := random.IntN(len(a100Profiles) + 1)
		name := ""
		if profile < len(a100Profiles) {
			name = a100Profiles[profile].name
		}
		profile = min(profile, len(a100Profiles)-1)
		claim := migClaim(fmt.Sprint("claim-", step), name)
		pod := claiming(claim.Name)
		pod.Namespace, pod.Name, pod.UID = "default", claim.Name, claim.UID
		b.SetResourceClaim(claim)
		b.SetPod(pod)
		arrived = append(arrived, profile)
		view := b.View()
		cycle := policytest.Prepare[policy.Score](t, p, pod, view)
		if _, err := fmt.Sscanf(cycle.(policy.Explainer).Explain(nil)[0], "LeastWaste: workload model of the first %d pods", &learned); err != nil {
			t.Fatal(err)
		}
		came := make([]float64, len(a100Profiles))
		for _, profile := range arrived[:learned] {
			came[profile]++
		}
		values := placement.NewPartitionValues(known["node-0"].Layout, came)
		best, lowest := "", placement.Cost(0)
		costs := map[placement.Cost]bool{}
		for name, n := range known {
			score := cycle.Score(view.Node(name))
			d, ok := n.First(profile)
			if !ok {
				if score != policy.NoOpinion {
					t.Fatalf("step %d: %s has no room, and the score %d", step, name, score)
				}
				continue
			}
			lost, _ := values.Loss(n.GPUs[d.GPU], d.Partition)
			cost := lost + placement.Order(name)
			if score != -int64(cost) {
				t.Fatalf("step %d: the score of %s is %d, and the arithmetic's cost %d", step, name, score, cost)
			}
			costs[lost] = true
			if best == "" || cost < lowest {
				best, lowest = name, cost
			}
		}
		if best != "" {
			if len(costs) > 1 {
				choices++
			}
			request, err := predictor.Request(pod, view)
			if err != nil {
				t.Fatal(err)
			}
			results, err := predictor.Allocate(request, view.Node(best))
			if err != nil {
				t.Fatal(err)
			}
			n := known[best]
			d, _ := n.First(profile)
			device := slices.Index(n.names, results[0].Devices.Results[0].Device)
			if n.Devices[device] != d {
				t.Fatalf("step %d: kube-scheduler takes %s, and the arithmetic %v", step, n.names[device], d)
			}
			n.GPUs[d.GPU], _ = n.Layout.Take(n.GPUs[d.GPU], d.Partition)
			claim = claim.DeepCopy()
			claim.Status.Allocation = &results[0]
			b.SetResourceClaim(claim)
			all = append(all, running{pod, claim, best})
		} else {
			b.DeletePod(pod.UID)
			b.DeleteResourceClaim(claim)
		}
		if len(all) > 12 { // one of them ends
			at := random.IntN(len(all))
			over := all[at]
			all = slices.Delete(all, at, at+1)
			b.DeletePod(over.pod.UID)
			b.DeleteResourceClaim(over.claim)
			n := known[over.node]
			clear(n.GPUs)
			for _, r := range all {
				if r.node == over.node {
					d := n.Devices[slices.Index(n.names, r.claim.Status.Allocation.Devices.Results[0].Device)]
					n.GPUs[d.GPU], _ = n.Layout.Take(n.GPUs[d.GPU], d.Partition)
				}
			}
		}
	}
	if choices < 100 || learned < 100 {
		t.Errorf("%d choices between different losses, and %d pods were learned from", choices, learned)
	}
}

func TestSizesTemporary(t *testing.T) {
	_, published := migNode("a", 8)
	sum := int64(0)
	for _, s := range published {
		snapshot.TrimResourceSlice(s)
		sum += snapshot.SizeOf(s)
	}
	w := newGPUWorld()
	w.node("n", "T4", 8, false)
	for s := range w.ResourceSlices() {
		t.Log("MIG", sum, "plain", snapshot.SizeOf(s))
	}
}
