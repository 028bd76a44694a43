package resourceclaims_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policies/resourceclaims"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/test/openb"
)

var folder = flag.String("openb", "../../bench/openb", "the folder with the trace openb, for BenchmarkTrace")

// traceWorld is a cluster with the nodes of the trace, repeated, and pods of the trace on random nodes until 70 % of the GPUs are in use.
type traceWorld struct {
	gpuWorld
	nodes []string
	free  [][]int64      // of each GPU of a node, in millionths
	at    map[string]int // by node
}

func newTraceWorld(tb testing.TB, count int) *traceWorld {
	nodes, jobs, err := openb.Read(*folder, openb.Pods)
	if err != nil {
		tb.Skip(err)
	}
	nodes = slices.DeleteFunc(nodes, func(n *corev1.Node) bool { return gpusOf(n) == 0 })
	w, random := &traceWorld{gpuWorld: *newGPUWorld(), at: map[string]int{}}, rand.New(rand.NewPCG(1, 2))
	all := int64(0)
	for i := range count {
		n := nodes[i%len(nodes)]
		all += gpusOf(n) * 1000
		w.node(fmt.Sprint(n.Name, "-", i), n.Labels["nvidia.com/gpu.product"], gpusOf(n))
	}
	for used, i := int64(0), 0; used < all*7/10; i++ {
		job := jobs[random.IntN(len(jobs))].Pod
		gpus, memory := max(1, gpusOf(job)), job.Spec.Containers[0].Resources.Requests["aliyun.com/gpu-mem"]
		if memory.Value() > 0 && w.place(fmt.Sprint("past-", i), random.IntN(count), gpus, memory.Value()/gpus*1000) {
			used += memory.Value()
		}
	}
	return w
}

func gpusOf(o metav1.Object) (count int64) {
	if n, ok := o.(*corev1.Node); ok {
		gpus := n.Status.Capacity["aliyun.com/gpu-count"]
		return gpus.Value()
	}
	fmt.Sscan(o.GetLabels()["aliyun.com/gpu-count"], &count)
	return count
}

// node adds a node with devices that have the attributes of NVIDIA's driver.
func (w *traceWorld) node(name, model string, gpus int64) {
	w.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	s.Spec = resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, ResourceSliceCount: 1}}
	free := make([]int64, gpus)
	for i := range free {
		free[i] = 1e6
		text := func(t string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{StringValue: &t} }
		version := func(t string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{VersionValue: &t} }
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name: fmt.Sprint("gpu-", i), AllowMultipleAllocations: new(true),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"model": text(model), "uuid": text(fmt.Sprint("GPU-", name, "-", i)), "type": text("gpu"), "brand": text("Nvidia"), "architecture": text("Ampere"),
				"index": {IntValue: new(int64(i))}, "minor": {IntValue: new(int64(i))}, "driverVersion": version("580.65.6"), "cudaDriverVersion": version("13.0.0"),
				"cudaComputeCapability": version("8.0.0"), "resource.kubernetes.io/pciBusID": text(fmt.Sprintf("0000:%02x:00.0", i)), "resource.kubernetes.io/pcieRoot": text(fmt.Sprint("pci", i/2)),
			},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("1M")}},
		})
	}
	w.at[name] = len(w.nodes)
	w.nodes, w.free = append(w.nodes, name), append(w.free, free)
	w.SetResourceSlice(s)
}

// request returns a claim for shares of GPUs, of all models or of one.
func (w *traceWorld) request(name string, gpus, memory int64, model string) *resourcev1.ResourceClaim {
	var selectors []string
	if model != "" {
		selectors = append(selectors, fmt.Sprintf("device.attributes[\"gpu.example.com\"].model == %q", model))
	}
	c := w.claim(name, gpus, 1, selectors...)
	c.Spec.Devices.Requests[0].Exactly.Capacity.Requests["memory"] = *resource.NewQuantity(memory, resource.DecimalSI)
	return c
}

// place allocates a claim on the node, if it fits.
func (w *traceWorld) place(name string, node int, gpus, memory int64) bool {
	var devices []int
	for i, free := range w.free[node] {
		if free >= memory && len(devices) < int(gpus) {
			devices = append(devices, i)
		}
	}
	if len(devices) < int(gpus) {
		return false
	}
	c := allocated(w.request(name, gpus, memory, ""), w.nodes[node], 0, devices...)
	for i, device := range devices {
		w.free[node][device] -= memory
		c.Status.Allocation.Devices.Results[i].ConsumedCapacity["memory"] = *resource.NewQuantity(memory, resource.DecimalSI)
	}
	w.SetResourceClaim(c)
	return true
}

// release deletes a claim that place has allocated.
func (w *traceWorld) release(name string) {
	for c := range w.ResourceClaims() {
		if c.Name != name {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			memory, device := r.ConsumedCapacity["memory"], 0
			fmt.Sscanf(r.Device, "gpu-%d", &device)
			w.free[w.at[r.Pool]][device] += memory.Value()
		}
		w.DeleteResourceClaim(c)
		return
	}
}

// BenchmarkTrace scores all nodes of a cluster in realistic use for one pod after another, each of which takes a share on the best node. The
// kinds of requests are not known, or 100 in turn, of which 30 select a model; or nothing is known, not even the devices of the nodes.
// allocator says that nothing else predicts.
func BenchmarkTrace(b *testing.B) {
	for _, count := range []int{1213, 5000} {
		for _, kinds := range []string{"unknown", "100", "start"} {
			for _, by := range []string{"allocator", "policy"} {
				b.Run(fmt.Sprint(count, "/", kinds, "/", by), func(b *testing.B) { benchmarkTrace(b, count, kinds, by == "allocator") })
			}
		}
	}
}

func benchmarkTrace(b *testing.B, count int, kinds string, allocator bool) {
	w, p := newTraceWorld(b, count), build(b, "")
	pod := 0
	next := func() {
		memory, model := int64(100_000+pod%700_000), "" // differs for 700,000 pods
		switch kinds {
		case "100":
			memory = int64(100_000 + pod%100*1000)
			if pod%100 < 30 {
				model = []string{"T4", "P100", "V100M16"}[pod%3]
			}
		case "start":
			p = build(b, "")
		}
		claim := w.request(fmt.Sprint("new-", pod), 1, memory, model)
		pending := claiming(claim.Name)
		w.SetResourceClaim(claim)
		view := w.View()
		b.StartTimer()
		cycle := policytest.Prepare[policy.Score](b, p, pending, view)
		if allocator {
			resourceclaims.OnlyAllocator(cycle)
		}
		best, at := policy.NoOpinion, ""
		for n := range view.All() {
			if score := cycle.Score(n); score > best {
				best, at = score, n.Object.Name
			}
		}
		b.StopTimer()
		w.DeleteResourceClaim(claim)
		if at == "" || !w.place(claim.Name, w.at[at], 1, memory) {
			b.Fatalf("pod %d has no place on %q", pod, at)
		}
		if pod++; pod > 500 {
			w.release(fmt.Sprint("new-", pod-500))
		}
	}
	b.StopTimer()
	warm := 8
	if kinds == "100" {
		warm = 100
	}
	for range warm {
		next() // what is kept is not measured
	}
	b.ResetTimer()
	for range b.N {
		next()
	}
}
