package gpumemory_test

import (
	"fmt"
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// TestOverbookedGPUHasNothingFree, however much its pods use beyond its capacity.
func TestOverbookedGPUHasNothingFree(t *testing.T) {
	p := build(t, `{}`)
	for name, pods := range map[string][]*corev1.Pod{
		"past int64":  {placed("a", math.MaxInt64, "0"), placed("b", math.MaxInt64, "0"), placed("c", 3, "0")},
		"and unknown": {placed("a", math.MaxInt64, "x"), placed("b", math.MaxInt64, "0")},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{node: gpuNode("n", 1, 15), pods: pods}
			expect(t, "one unit", policytest.Says(filter(t, p, gpuPod("new", 1, 0), w.snapshot())), "InsufficientMemory 0/1 GiB")
			expect(t, "very much", policytest.Says(filter(t, p, gpuPod("new", 9999, 0), w.snapshot())), "TooLarge! 15/9999 GiB")
			if _, verdict := w.reserve(p, gpuPod("new", 1, 0)); verdict.Fits() {
				t.Error("Reserve allocates a unit")
			}
			if d := gpumemory.GPUs(gpumemory.Defaults(), w.snapshot())[0]; d.Free() != 0 || d.Used <= d.Capacity {
				t.Errorf("%d of %d used, %d free", d.Used, d.Capacity, d.Free())
			}
		})
	}
}

// TestUnreadableIndex: a pod with an unknown GPU counts against each GPU; a pod that no tool has
// placed uses the only GPU, or none.
func TestUnreadableIndex(t *testing.T) {
	unplaced := func() *corev1.Pod {
		pod := placed("old", 6, "0")
		pod.Annotations = nil
		return pod
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"word":            {placed("old", 6, "first"), "0:6/16 1:6/16 "},
		"empty":           {placed("old", 6, ""), "0:6/16 1:6/16 "},
		"negative":        {placed("old", 6, "-1"), "0:6/16 1:6/16 "},
		"twice the same":  {placed("old", 6, "1,1"), "0:6/16 1:6/16 "},
		"partly readable": {placed("old", 6, "1,x"), "0:6/16 1:6/16 "},
		"past the end":    {placed("old", 6, "7"), "0:0/16 1:0/16 7:6/0 "},
		"far past it":     {placed("old", 6, "1000000"), "0:0/16 1:0/16 1000000:6/0 "},
		"two":             {placed("old", 7, "0,1"), "0:4/16 1:4/16 "},
		"none":            {unplaced(), "0:0/16 1:0/16 "},
	} {
		w := &world{node: gpuNode("n", 2, 16), pods: []*corev1.Pod{tc.pod}}
		expect(t, name, usage(w.snapshot(), gpumemory.Defaults()), tc.want)
	}
	several := &world{node: gpuNode("n", 1, 16), pods: []*corev1.Pod{placed("a", 6, "9"), placed("b", 5, "7")}}
	expect(t, "several past the end", usage(several.snapshot(), gpumemory.Defaults()), "0:0/16 7:5/0 9:6/0 ")
	w := &world{node: gpuNode("n", 1, 16), pods: []*corev1.Pod{unplaced()}}
	expect(t, "none on the only GPU", usage(w.snapshot(), gpumemory.Defaults()), "0:6/16 ")
}

// TestAllocationAnnotation: other schedulers allocate several GPUs to a pod and write them into an
// annotation of their own. The policy ignores such an annotation if its amount differs from the
// request.
func TestAllocationAnnotation(t *testing.T) {
	for allocation, want := range map[string]string{
		`{"0":{"0":4,"1":2}}`:       "0:4/16 1:2/16 ",
		`{"0":{"1":4},"1":{"1":2}}`: "0:0/16 1:6/16 ",
		`{"0":{"1":5},"1":{"3":1}}`: "0:0/16 1:5/16 3:1/0 ",
		`{"0":{"1":5}}`:             "0:6/16 1:0/16 ",
		`{"0":{"1":7}}`:             "0:6/16 1:0/16 ",
		`{"0":{"1":-1,"0":7}}`:      "0:6/16 1:0/16 ",
		`{"0":{"x":6}}`:             "0:6/16 1:0/16 ",
		`{"0":{"-1":6}}`:            "0:6/16 1:0/16 ",
		`{"0":6}`:                   "0:6/16 1:0/16 ",
		`{`:                         "0:6/16 1:0/16 ",
		``:                          "0:6/16 1:0/16 ",
		`{"0":{"1":9e99}}`:          "0:6/16 1:0/16 ",
		`{"0":{"1":6.5}}`:           "0:6/16 1:0/16 ",
	} {
		pod := placed("old", 6, "0")
		pod.Annotations["scheduler.framework.gpushare.allocation"] = allocation
		w := &world{node: gpuNode("n", 2, 16), pods: []*corev1.Pod{pod}}
		expect(t, allocation, usage(w.snapshot(), gpumemory.Defaults()), want)
	}
}

// TestWholeGPUsOfAnnotations: a pod with whole GPUs holds them whatever size they have when they
// come back, and no more of them than it requests, whatever its annotation says.
func TestWholeGPUsOfAnnotations(t *testing.T) {
	pod := placed("old", 0, "1")
	pod.Spec.Containers[0].Resources.Limits = list(0, 1)
	w := &world{node: gpuNode("n", 2, 16), pods: []*corev1.Pod{pod}}
	expect(t, "there", usage(w.snapshot(), gpumemory.Defaults()), "0:0/16 1:16/16 ")
	w.node = gpuNode("n", 1, 16)
	expect(t, "gone", usage(w.snapshot(), gpumemory.Defaults()), "0:0/16 1:0/0 ")
	w.node = gpuNode("n", 2, 24)
	expect(t, "larger", usage(w.snapshot(), gpumemory.Defaults()), "0:0/24 1:24/24 ")
	pod.Annotations["ALIYUN_COM_GPU_MEM_IDX"] = "?"
	expect(t, "unknown", usage(w.snapshot(), gpumemory.Defaults()), "0:24/24 1:0/24 ")
	w.pods = append(w.pods, placed("share", 6, "0"))
	expect(t, "unknown, beside another pod", usage(w.snapshot(), gpumemory.Defaults()), "0:6/24 1:24/24 ")
	w.pods = append(w.pods, placed("another", 6, "1"))
	expect(t, "unknown, beside pods on all GPUs", usage(w.snapshot(), gpumemory.Defaults()), "0:6/24 1:6/24 2:0/0 ")
	w.pods = w.pods[:1]
	pod.Annotations["ALIYUN_COM_GPU_MEM_IDX"] = "1,0"
	expect(t, "more than it requests", usage(w.snapshot(), gpumemory.Defaults()), "0:0/24 1:24/24 ")
}

// TestUnhealthyGPUs: only the index of a GPU marks it as unhealthy.
func TestUnhealthyGPUs(t *testing.T) {
	p := build(t, `{}`)
	expect(t, "ConfigMaps", fmt.Sprint(p.(policy.InputReader).Inputs().ConfigMaps), "[{kube-system unhealthy-gpu-}]")
	for gpus, want := range map[string]string{
		"":             "0",
		",":            "0",
		"x":            "0",
		"-1":           "0",
		"0x0":          "0",
		"7":            "0",
		"64,100000000": "0",
		"GPU-1234,x":   "0",
		"0":            "1",
		" 0 , x":       "1",
		"0,1":          "2",
		"2,0":          "1",
		"0,1,2":        "TooLarge! 0/16 GiB",
	} {
		w := &world{node: gpuNode("n", 3, 16), gpus: gpus}
		allocation, verdict := w.reserve(p, gpuPod("new", 16, 0))
		got := policytest.Says(verdict)
		if verdict.Fits() {
			got = allocation.Annotations["ALIYUN_COM_GPU_MEM_IDX"]
		}
		expect(t, fmt.Sprintf("gpus: %q", gpus), got, want)
	}
}

// TestUnequalGPUs: each GPU has its own size, although the device plugin counts all as large as the
// first one.
func TestUnequalGPUs(t *testing.T) {
	p, node := build(t, `{sizesFrom: {annotation: example.com/sizes}}`), gpuNode("n", 3, 16)
	node.Annotations = map[string]string{"example.com/sizes": "16, 8, 32"}
	w := &world{node: node}
	for memory, want := range map[int64]string{8: "1 8", 9: "0 16", 17: "2 32"} {
		allocation, verdict := w.reserve(p, gpuPod("new", memory, 0))
		got := allocation.Annotations["ALIYUN_COM_GPU_MEM_IDX"] + " " + allocation.Annotations["ALIYUN_COM_GPU_MEM_DEV"]
		expect(t, fmt.Sprint(memory), policytest.Says(verdict)+" "+got, "fits "+want)
	}
}

// TestQuantityWithSuffix: 10G are ten thousand million units, which no GPU has, and the numbers
// of the verdict show it.
func TestQuantityWithSuffix(t *testing.T) {
	pod := gpuPod("new", 0, 0)
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gpuMem: resource.MustParse("10G")}
	w := &world{node: gpuNode("n", 1, 16)}
	expect(t, "10G", policytest.Says(filter(t, build(t, `{}`), pod, w.snapshot())), "TooLarge! 16/10000000000 GiB")
	w = &world{node: gpuNode("n", 1, 16276)}
	expect(t, "in MiB", policytest.Says(filter(t, build(t, `{unit: MiB}`), gpuPod("new", 16277, 0), w.snapshot())), "TooLarge! 16276/16277 MiB")
}

// TestGPUs: which pods hold what of which GPU, and which of them are not bound yet.
func TestDevices(t *testing.T) {
	p := build(t, `{}`)
	w := &world{node: gpuNode("n", 2, 16), gpus: "1", pods: []*corev1.Pod{placed("z", 3, "0"), placed("lost", 2, "?"), placed("swapped", 5, "4")}}
	w.allocation(t, p, gpuPod("coming", 4, 0))
	bound := gpuPod("bound", 1, 0)
	w.allocation(t, p, bound)
	w.bind(bound)
	got := ""
	for _, d := range gpumemory.GPUs(gpumemory.Defaults(), w.snapshot()) {
		got += fmt.Sprintf("%d: %d of %d, %d reserved, healthy %t\n", d.Index, d.Used, d.Capacity, d.Reserved, d.Healthy)
		for _, pod := range d.Pods {
			got += fmt.Sprintf("  %s/%s %s %d reserved %t unplaced %t\n", pod.Namespace, pod.Name, pod.UID, pod.Amount, pod.Reserved, pod.Unplaced)
		}
	}
	want := `0: 10 of 16, 5 reserved, healthy true
  default/bound uid-bound 1 reserved true unplaced false
  default/coming uid-coming 4 reserved true unplaced false
  default/lost uid-lost 2 reserved false unplaced true
  default/z uid-z 3 reserved false unplaced false
1: 2 of 16, 0 reserved, healthy false
  default/lost uid-lost 2 reserved false unplaced true
4: 7 of 0, 0 reserved, healthy true
  default/lost uid-lost 2 reserved false unplaced true
  default/swapped uid-swapped 5 reserved false unplaced false
`
	if got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	if devices := gpumemory.GPUs(gpumemory.Defaults(), snapshot.NewNode(policytest.Nodes(`metadata: {name: plain}`)[0])); len(devices) > 0 {
		t.Errorf("a node without GPUs has %v", devices)
	}
}
