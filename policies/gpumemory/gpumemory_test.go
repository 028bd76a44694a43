package gpumemory_test

import (
	"fmt"
	"maps"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

func TestScenarios(t *testing.T) {
	policytest.RunScenarios(t, gpumemory.Type(), "testdata/*.txtar")
}

func TestConformance(t *testing.T) {
	for name, config := range map[string]string{
		"defaults":    `{}`,
		"other":       `{unit: MiB, gpuSelection: Spread, scoringStrategy: {type: Spread}, sizesFrom: {annotation: example.com/sizes}, multiGPU: true, multiContainer: true}`,
		"fractioning": `{nodeAgent: GPUFractioning}`,
		"toolkit":     `{nodeAgent: ContainerToolkit, scoringStrategy: {type: LeastWaste}}`,
		"least waste": `{scoringStrategy: {type: LeastWaste}, multiGPU: true, multiContainer: true, sizesFrom: {annotation: example.com/sizes}}`,
	} {
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, policytest.Options{
				New: policytest.FromYAML(gpumemory.Type(), config),
				Pods: policytest.Pods(`
- {metadata: {name: small}, spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 4}}}]}}
- metadata: {name: picky, annotations: {outboard.dev/gpu-models: "A100,T4"}}
  spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 12}}}]}
- {metadata: {name: whole}, spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu-count: 2}}}]}}
- metadata: {name: two, labels: {aliyun.com/gpu-count: "2"}}
  spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 8}}}, {name: d, resources: {limits: {aliyun.com/gpu-mem: 4}}}]}
- {metadata: {name: none}, spec: {containers: [{name: c, resources: {requests: {cpu: 2}}}]}}
- metadata: {name: annotated, annotations: {nvidia.com/container.c.gpu-memory.request: 4Gi, nvidia.com/container.d.gpu-memory.limit: 2Gi}}
  spec: {containers: [{name: c}, {name: d}]}
- {metadata: {name: whole-annotated, annotations: {outboard.dev/whole-gpus: "2"}}, spec: {containers: [{name: c}]}}
- metadata: {name: init}
  spec: {initContainers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 4}}}], containers: [{name: d}]}
`),
				Nodes: policytest.Nodes(`
- metadata: {name: a, labels: {nvidia.com/gpu.product: T4}}
  status: {capacity: {aliyun.com/gpu-mem: 32, aliyun.com/gpu-count: 2}}
- metadata: {name: b, annotations: {example.com/sizes: "16,8,32"}}
  status: {capacity: {aliyun.com/gpu-mem: 48, aliyun.com/gpu-count: 3}}
- metadata: {name: c}
- metadata: {name: d}
  status: {capacity: {aliyun.com/gpu-mem: 16, aliyun.com/gpu-count: 1}}
- metadata: {name: e, labels: {nvidia.com/gpu.count: "3", nvidia.com/gpu.memory: "8192"}}
  status: {conditions: [{type: gpu-fractioning.nvidia.com/Ready, status: "True"}]}
`),
				Assigned: policytest.Pods(`
- metadata: {name: p1, annotations: {ALIYUN_COM_GPU_MEM_IDX: "0", ALIYUN_COM_GPU_MEM_ASSIGNED: "false"}}
  spec: {nodeName: a, containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 6}}}]}
- metadata: {name: p2, annotations: {ALIYUN_COM_GPU_MEM_IDX: "1", scheduler.framework.gpushare.allocation: '{"0":{"1":5,"2":5}}'}}
  spec: {nodeName: b, containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 10}}}]}
- metadata: {name: p3, annotations: {ALIYUN_COM_GPU_MEM_IDX: "0,1"}}
  spec: {nodeName: b, containers: [{name: c, resources: {limits: {aliyun.com/gpu-count: 2}}}]}
- metadata: {name: p5, annotations: {nvidia.com/container.c.gpu-memory.limit: 3Gi, nvidia.com/container.c.gpus.devices: "2"}}
  spec: {nodeName: e, containers: [{name: c}]}
- {metadata: {name: p4}, spec: {nodeName: d, containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 10}}}]}}
`),
			})
		})
	}
}

// TestAnnotations: the exact annotations that the device plugin reads.
func TestAnnotations(t *testing.T) {
	at := strconv.FormatInt(start.UnixNano()+1, 10)
	copied := gpuPod("p", 6, 0)
	copied.Annotations = map[string]string{"ALIYUN_COM_GPU_MEM_IDX": "2", "ALIYUN_COM_GPU_MEM_ASSIGNED": "true", "scheduler.framework.gpushare.allocation": `{"0":{"2":6}}`}
	for name, tc := range map[string]struct {
		config string
		pod    *corev1.Pod
		want   map[string]string
	}{
		"share of one GPU": {`{}`, gpuPod("p", 6, 0), map[string]string{
			"ALIYUN_COM_GPU_MEM_IDX": "1", "ALIYUN_COM_GPU_MEM_DEV": "16", "ALIYUN_COM_GPU_MEM_POD": "6",
			"ALIYUN_COM_GPU_MEM_ASSIGNED": "false", "ALIYUN_COM_GPU_MEM_ASSUME_TIME": at,
		}},
		"share of one GPU among several": {`{multiGPU: true}`, gpuPod("p", 6, 1), map[string]string{
			"ALIYUN_COM_GPU_MEM_IDX": "1", "ALIYUN_COM_GPU_MEM_DEV": "16", "ALIYUN_COM_GPU_MEM_POD": "6",
			"ALIYUN_COM_GPU_MEM_ASSIGNED": "false", "ALIYUN_COM_GPU_MEM_ASSUME_TIME": at,
			"scheduler.framework.gpushare.allocation": `{"0":{"1":6}}`,
		}},
		"annotations of another pod": {`{}`, copied, map[string]string{
			"ALIYUN_COM_GPU_MEM_IDX": "1", "ALIYUN_COM_GPU_MEM_DEV": "16", "ALIYUN_COM_GPU_MEM_POD": "6",
			"ALIYUN_COM_GPU_MEM_ASSIGNED": "false", "ALIYUN_COM_GPU_MEM_ASSUME_TIME": at,
			"scheduler.framework.gpushare.allocation": `{"0":{"1":6}}`,
		}},
		"shares of two GPUs": {`{multiGPU: true}`, gpuPod("p", 20, 2), map[string]string{
			"ALIYUN_COM_GPU_MEM_IDX": "0,2", "ALIYUN_COM_GPU_MEM_DEV": "16,16", "ALIYUN_COM_GPU_MEM_POD": "20",
			"ALIYUN_COM_GPU_MEM_ASSIGNED": "false", "ALIYUN_COM_GPU_MEM_ASSUME_TIME": at,
			"scheduler.framework.gpushare.allocation": `{"0":{"0":10,"2":10}}`,
		}},
		"whole GPUs": {`{}`, gpuPod("p", 0, 2), map[string]string{
			"ALIYUN_COM_GPU_MEM_IDX": "0,2", "ALIYUN_COM_GPU_MEM_DEV": "16,16", "ALIYUN_COM_GPU_MEM_POD": "32",
			"ALIYUN_COM_GPU_MEM_ASSIGNED": "true", "ALIYUN_COM_GPU_MEM_ASSUME_TIME": at,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{node: gpuNode("n", 3, 16), pods: []*corev1.Pod{placed("old", 8, "1")}}
			if got := w.allocation(t, build(t, tc.config), tc.pod); !maps.Equal(got, tc.want) {
				t.Errorf("got\n%v, want\n%v", got, tc.want)
			}
		})
	}
}

// TestAllocationOfContainers: each of several containers has its own entry.
func TestAllocationOfContainers(t *testing.T) {
	pod := gpuPod("p", 4, 0)
	pod.Labels = map[string]string{gpuCount: "2"}
	second := pod.Spec.Containers[0].DeepCopy()
	second.Resources.Limits = list(6, 0)
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "plain"}, *second)
	w := &world{node: gpuNode("n", 2, 16)}
	got := w.allocation(t, build(t, `{multiGPU: true, multiContainer: true}`), pod)
	expect(t, "allocation", got["scheduler.framework.gpushare.allocation"], `{"0":{"0":2,"1":2},"2":{"0":3,"1":3}}`)
	expect(t, "amount", got["ALIYUN_COM_GPU_MEM_POD"], "10")
}

// TestGPUSelection: the GPUs have 16, 6, 10 and 6 free, and the unhealthy last one 32.
func TestGPUSelection(t *testing.T) {
	for _, tc := range []struct {
		config        string
		memory, count int64
		want          string
	}{
		{`{}`, 2, 0, "1"},
		{`{}`, 6, 0, "1"},
		{`{}`, 7, 0, "2"},
		{`{}`, 11, 0, "0"},
		{`{}`, 0, 1, "0"},
		{`{gpuSelection: Spread}`, 2, 0, "0"},
		{`{gpuSelection: Spread}`, 16, 0, "0"},
		{`{multiGPU: true}`, 8, 2, "1,3"},
		{`{multiGPU: true}`, 14, 2, "0,2"},
		{`{multiGPU: true, gpuSelection: Spread}`, 8, 2, "0,2"},
	} {
		w := &world{
			node: gpuNode("n", 5, 16),
			pods: []*corev1.Pod{placed("p1", 10, "1"), placed("p2", 6, "2"), placed("p3", 10, "3")},
			gpus: "4",
		}
		got := w.allocation(t, build(t, tc.config), gpuPod("new", tc.memory, tc.count))["ALIYUN_COM_GPU_MEM_IDX"]
		expect(t, fmt.Sprintf("%s, %d of %d", tc.config, tc.memory, tc.count), got, tc.want)
	}
}

// TestEqualPodsGoTogether: the device plugin distinguishes pending pods of one size only by the
// order of their bindings. So they get the same GPU while it has room, and any other GPU as soon as
// they run.
func TestEqualPodsGoTogether(t *testing.T) {
	p := build(t, `{gpuSelection: Spread}`)
	w := &world{node: gpuNode("n", 2, 16)}
	first := gpuPod("first", 4, 0)
	index := func(pod *corev1.Pod) string {
		allocation, verdict := w.reserve(p, pod)
		if !verdict.Fits() {
			t.Fatal(policytest.Says(verdict))
		}
		return allocation.Annotations["ALIYUN_COM_GPU_MEM_IDX"]
	}
	expect(t, "first", w.allocation(t, p, first)["ALIYUN_COM_GPU_MEM_IDX"], "0")
	expect(t, "same size while the first is not bound", index(gpuPod("second", 4, 0)), "0")
	expect(t, "another size", index(gpuPod("second", 5, 0)), "1")
	bound := w.bind(first)
	expect(t, "same size while the first is not served", index(gpuPod("second", 4, 0)), "0")
	bound.Annotations = maps.Clone(bound.Annotations)
	bound.Annotations["ALIYUN_COM_GPU_MEM_ASSIGNED"] = "true"
	expect(t, "same size when the first is served", index(gpuPod("second", 4, 0)), "1")
	bound.Annotations["ALIYUN_COM_GPU_MEM_ASSIGNED"] = "false"
	bound.Status.Phase = corev1.PodRunning
	expect(t, "same size when the first runs", index(gpuPod("second", 4, 0)), "1")

	bound.Annotations, bound.Status.Phase = nil, corev1.PodPending
	expect(t, "same size when the first's annotations are not known yet", index(gpuPod("second", 4, 0)), "0")

	foreign := placed("foreign", 3, "0")
	foreign.Status.Phase, foreign.Annotations["ALIYUN_COM_GPU_MEM_ASSIGNED"] = corev1.PodPending, "false"
	w = &world{node: gpuNode("n", 2, 16), pods: []*corev1.Pod{foreign}}
	expect(t, "same size as a pod bound by another tool", index(gpuPod("second", 3, 0)), "0")
	foreign = foreign.DeepCopy()
	w.pods = []*corev1.Pod{foreign, placed("large", 12, "0")}
	expect(t, "no room beside it", index(gpuPod("second", 3, 0)), "1")
}

// largeView has 5,000 nodes with 8 GPUs and 30 pods each.
func largeView() *snapshot.View {
	var builder snapshot.Builder
	for i := range 5000 {
		name := fmt.Sprint("node-", i)
		builder.SetNode(gpuNode(name, 8, 16))
		for j := range 30 {
			pod := placed(fmt.Sprint("pod-", j), int64(j%5), strconv.Itoa(j%8))
			pod.UID, pod.Spec.NodeName = types.UID(fmt.Sprint(i, "/", j)), name
			builder.SetPod(pod)
		}
	}
	return builder.View()
}

func BenchmarkGPUMemory(b *testing.B) {
	view := largeView()
	for _, strategy := range []string{"BinPack", "LeastWaste"} {
		b.Run(strategy, func(b *testing.B) {
			policytest.Benchmark(b, build(b, "{scoringStrategy: {type: "+strategy+"}}"), gpuPod("new", 6, 0), view)
		})
	}
}

// BenchmarkUnits lists the GPUs of a View of which nothing has changed since they were last listed. The target is 1 ms.
func BenchmarkUnits(b *testing.B) {
	view, lister := largeView(), build(b, "{}").(policy.UnitLister)
	lister.Units(view)
	for b.Loop() {
		if units := lister.Units(view); len(units.Nodes) != 5000 {
			b.Fatalf("%d nodes", len(units.Nodes))
		}
	}
}
