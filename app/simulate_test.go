package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const simulatedCluster = `
apiVersion: v1
kind: List
items:
- {kind: Node, apiVersion: v1, metadata: {name: a}, status: {allocatable: {cpu: 8, memory: 16Gi, pods: 10, aliyun.com/gpu-mem: 32}, capacity: {aliyun.com/gpu-mem: 32, aliyun.com/gpu-count: 2}}}
- {kind: Node, apiVersion: v1, metadata: {name: b}, status: {allocatable: {cpu: 8, memory: 16Gi, pods: 10, aliyun.com/gpu-mem: 32}, capacity: {aliyun.com/gpu-mem: 32, aliyun.com/gpu-count: 2}}}
- kind: Pod
  apiVersion: v1
  metadata: {name: runs, annotations: {ALIYUN_COM_GPU_MEM_IDX: "0"}}
  spec: {nodeName: a, containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 10}}}]}
`

const onePod = `{kind: Pod, apiVersion: v1, metadata: {name: new}, spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 10}, requests: {cpu: 1}}}]}}`

func TestSimulate(t *testing.T) {
	nodes, pod := file(t, simulatedCluster), file(t, onePod)
	binpack := file(t, header+"profiles:\n- shortlist: 1\n  policies: [{type: GPUMemory}]\n")
	out, err := execute(t, "simulate", nodes, "--config", binpack, "--seeds", "2")
	if err != nil {
		t.Fatal(err)
	}
	// Three GPUs fit one pod with 10 each, beside the running pod: 40 of 64.
	for _, want := range []string{"outboard, seed 43: 62.50 % allocated", "62.50±0.00"} {
		if !strings.Contains(out, want) {
			t.Errorf("got\n%swant %q", out, want)
		}
	}
	again, err := execute(t, "simulate", nodes, "--config", binpack, "--seeds", "2", "--start-empty")
	if err != nil || !strings.Contains(again, "62.50±0.00") {
		t.Errorf("with an empty cluster: %s (%v)", again, err)
	}
	if more, err := execute(t, "simulate", nodes, "--config", binpack, "--count-fitting", pod); err != nil || more != "outboard: 3 more pods like default/new fit\n  the next one fits on no node: 2 Insufficient GPU Memory in one device\n" {
		t.Errorf("how many more: %q (%v)", more, err)
	}
	// kube-scheduler alone compares the sum of each node: one node fits one or two more pods with
	// 10, and another node a third one.
	if more, err := execute(t, "simulate", nodes, "--count-fitting", pod); err != nil || more != "kube-scheduler alone: 5 more pods like default/new fit\n  the next one fits on no node: 2 Insufficient aliyun.com/gpu-mem\n" {
		t.Errorf("how many more without Outboard: %q (%v)", more, err)
	}
}

// Figures of several configurations are compared only if they are relative to the same capacity, whatever the order of the files. A note
// says if only some of them allocate single GPUs.
func TestSimulateComparesWhatIsComparable(t *testing.T) {
	nodes := file(t, `
{kind: Node, apiVersion: v1, metadata: {name: mixed, annotations: {example.com/gpu-sizes: "48,24"}}, status: {allocatable: {cpu: 8, memory: 16Gi, pods: 10, aliyun.com/gpu-mem: 96, aliyun.com/gpu-count: 2}, capacity: {aliyun.com/gpu-mem: 96, aliyun.com/gpu-count: 2}}}
---
{kind: Pod, apiVersion: v1, metadata: {name: p}, spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 24}, requests: {cpu: 1, aliyun.com/gpu-mem: 24}}}]}}
`)
	configuration := func(policy string) string { return file(t, header+"profiles:\n- policies: ["+policy+"]\n") }
	sized := configuration("{type: GPUMemory, config: {sizesFrom: {annotation: example.com/gpu-sizes}}}")
	largest, none := configuration("{type: GPUMemory}"), configuration("{type: ImageLocality}")
	const note = "Not comparable: "
	for _, tt := range []struct {
		name, a, b, resource string
		want                 string // in the output or the error; "" is no note
	}{
		{"other sizes", largest, sized, "aliyun.com/gpu-mem", "the capacity for aliyun.com/gpu-mem is 96 with "},
		{"other sizes, in another order", sized, largest, "aliyun.com/gpu-mem", "the capacity for aliyun.com/gpu-mem is 72 with "},
		{"sizes and no GPUs", sized, none, "aliyun.com/gpu-mem", "so that their figures cannot be compared"},
		{"GPUs and no GPUs", largest, none, "aliyun.com/gpu-mem", note},
		{"another resource", sized, none, "cpu", ""},
		{"the same sizes", sized, sized, "aliyun.com/gpu-mem", ""},
	} {
		out, err := execute(t, "simulate", nodes, "--resource", tt.resource, "--seeds", "1", "--config", tt.a, "--config", tt.b)
		if err != nil {
			out = err.Error()
		}
		if !strings.Contains(out, tt.want) || tt.want == "" && (err != nil || strings.Contains(out, note)) {
			t.Errorf("%s: %s\nwant %q", tt.name, out, tt.want)
		}
	}
}

func TestSimulateNeedsSense(t *testing.T) {
	nodes, twoPods := file(t, simulatedCluster), file(t, onePod+"\n---\n"+strings.ReplaceAll(onePod, "new", "other"))
	two := file(t, header+"profiles:\n- {path: /a, policies: [{type: GPUMemory}]}\n- {path: /b, managedResources: [], policies: [{type: GPUMemory}]}\n")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "FILE is missing"},
		{[]string{"/nowhere.yaml"}, "/nowhere.yaml"},
		{[]string{file(t, onePod)}, "no nodes"},
		{[]string{nodes, "--seeds", "0"}, "--seeds"},
		{[]string{nodes, "--resource", "example.com/none"}, "example.com/none"},
		{[]string{nodes, "--config", two}, "--profile"},
		{[]string{nodes, "--config", two, "--profile", "/c"}, `"/c"`},
		{[]string{nodes, "--count-fitting", twoPods}, "2 pods"},
	} {
		if _, err := execute(t, append([]string{"simulate"}, tt.args...)...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.args, err, tt.want)
		}
	}
}

// The example prints the output in its README.
func TestGPUStrategiesExample(t *testing.T) {
	folder := filepath.Join("..", "examples", "gpu-strategies")
	in := func(name string) string { return filepath.Join(folder, name) }
	out, err := execute(t, "simulate", in("nodes.yaml"), in("pods.yaml"), "--seeds", "5",
		"--config", in("binpack.yaml"), "--config", in("least-waste.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(in("README.md"))
	if err != nil {
		t.Fatal(err)
	}
	table := out[strings.Index(out, "allocated % at"):]
	if !strings.Contains(string(readme), "```text\n"+table+"```\n") {
		t.Errorf("the README does not contain\n%s", table)
	}
}

// A realistic cluster has pods of DaemonSets and a pending pod, and no GPUs.
const dumpedCluster = `
apiVersion: v1
kind: List
items:
- {kind: Node, apiVersion: v1, metadata: {name: a}, status: {allocatable: {cpu: 8, memory: 16Gi, pods: 10}}}
- {kind: Pod, apiVersion: v1, metadata: {name: proxy, ownerReferences: [{kind: DaemonSet, name: proxy, apiVersion: apps/v1, uid: u}]}, spec: {nodeName: a, containers: [{name: c, resources: {requests: {cpu: 500m}}}]}}
- {kind: Pod, apiVersion: v1, metadata: {name: web}, spec: {nodeName: a, containers: [{name: c, resources: {requests: {cpu: 1}}}]}}
- {kind: Pod, apiVersion: v1, metadata: {name: big}, spec: {containers: [{name: c, resources: {requests: {cpu: 3}}}]}}
`

func TestSimulateWarnsOfSignals(t *testing.T) {
	uses := file(t, header+`
signals:
- name: nodes
  metrics: {resource: cpu}
profiles:
- policies: [{type: ImageLocality}]
`)
	out, err := execute(t, "simulate", file(t, dumpedCluster), "--resource", "cpu", "--seeds", "1", "--config", uses)
	if err != nil || !strings.Contains(out, "outboard: signals are not read (nodes)") {
		t.Errorf("%s (%v)", out, err)
	}
}

// kube-scheduler's reasons and those of policies count together, the most frequent first.
func TestSimulateSaysWhyNoMoreFit(t *testing.T) {
	nodes := file(t, simulatedCluster+`
- {kind: Node, apiVersion: v1, metadata: {name: cordoned}, spec: {unschedulable: true}, status: {allocatable: {cpu: 8, memory: 16Gi, pods: 10, aliyun.com/gpu-mem: 32}}}
- {kind: Node, apiVersion: v1, metadata: {name: without}, status: {allocatable: {cpu: 8, memory: 16Gi, pods: 10}}}
- {kind: Node, apiVersion: v1, metadata: {name: small}, status: {allocatable: {cpu: 500m, memory: 16Gi, pods: 10, aliyun.com/gpu-mem: 32}}}
- {kind: Node, apiVersion: v1, metadata: {name: smaller}, status: {allocatable: {cpu: 500m, memory: 16Gi, pods: 10, aliyun.com/gpu-mem: 32}}}
- {kind: Node, apiVersion: v1, metadata: {name: smallest}, status: {allocatable: {cpu: 500m, memory: 16Gi, pods: 10, aliyun.com/gpu-mem: 32}}}
`)
	config := file(t, header+"profiles:\n- policies: [{type: GPUMemory}]\n")
	big := file(t, strings.Replace(onePod, "gpu-mem: 10", "gpu-mem: 20", 1))
	const want = "outboard: 0 more pods like default/new fit\n" +
		"  the next one fits on no node: 3 Insufficient cpu, 2 node(s) have no healthy GPU that is large enough, 1 Insufficient aliyun.com/gpu-mem, 1 node(s) were unschedulable\n"
	if out, err := execute(t, "simulate", nodes, "--config", config, "--count-fitting", big); err != nil || out != want {
		t.Errorf("got\n%s(%v), want\n%s", out, err, want)
	}
}

func TestSimulateWarnsOfMissingAllocations(t *testing.T) {
	allocating := file(t, "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {resourceClaims: [{name: gpu, resourceClaimName: gpu}], containers: [{name: main}]}}")
	nodes := file(t, simulatedCluster)
	out, err := execute(t, "simulate", nodes, "--count-fitting", allocating)
	if want := "there is no ResourceClaim default/gpu in the files, so 1 pod fits on no node"; err != nil || !strings.Contains(out, want) || !strings.Contains(out, "0 more pods") {
		t.Errorf("%s (%v)\nwant %s", out, err, want)
	}
}

// --list-pods places the pods of the files once each, and no more like those that run.
func TestListPods(t *testing.T) {
	pods := file(t, "{apiVersion: v1, kind: Pod, metadata: {name: new}, spec: {containers: [{name: main, resources: {limits: {aliyun.com/gpu-mem: 6}}}]}}\n---\n"+
		"{apiVersion: v1, kind: Pod, metadata: {name: large}, spec: {containers: [{name: main, resources: {limits: {aliyun.com/gpu-mem: 60}}}]}}")
	config := file(t, header+"profiles:\n- {path: /gpu, policies: [{type: GPUMemory}]}\n")
	simulation := []string{"simulate", file(t, simulatedCluster), "--list-pods"}
	out, err := execute(t, append(simulation, pods, "--config", config)...)
	want := `POD            NODE  DEVICES
default/new    a     0 (6 of its aliyun.com/gpu-mem)
default/large  none  2 Insufficient aliyun.com/gpu-mem
`
	if err != nil || !strings.HasSuffix(out, want) {
		t.Errorf("%s (%v)\nwant\n%s", out, err, want)
	}
	for _, flag := range []string{"--seeds=2", "--count-fitting=" + pods, "--resource=cpu"} {
		if out, err := execute(t, append(simulation, flag)...); err == nil || !strings.Contains(err.Error(), "--list-pods") {
			t.Errorf("%s: %s (%v)", flag, out, err)
		}
	}
}

// Pods go where kube-scheduler puts them if it calls all profiles of the configuration.
func TestSimulateProfilesTogether(t *testing.T) {
	const web = "{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {app: web}}, spec: {containers: [{name: main%s}]}}\n---\n"
	const gpu = ", resources: {limits: {aliyun.com/gpu-mem: 6}}"
	pods := file(t, fmt.Sprintf(web+web+web+web+web, "first", gpu, "second", gpu, "third", "", "fourth", gpu, "fifth", ""))
	config := file(t, header+`
profiles:
- {path: /limit, policies: [{type: PodLimit, weight: 5, config: {max: 2, selector: {matchLabels: {app: web}}}}]}
- {path: /gpu, policies: [{type: GPUMemory}]}
- {path: /rank, verb: Prioritize, policies: [{type: PodLimit, config: {max: 1, selector: {matchLabels: {app: web}}}}]}
`)
	simulation := []string{"simulate", file(t, simulatedCluster), "--list-pods", "--config", config, pods}
	out, err := execute(t, simulation...)
	const want = `POD             NODE  DEVICES
default/first   a     0 (6 of its aliyun.com/gpu-mem)
default/second  b     0 (6 of its aliyun.com/gpu-mem)
default/third   b     
default/fourth  a     1 (6 of its aliyun.com/gpu-mem)
default/fifth   none  2 node(s) have reached their limit of matching pods
`
	if err != nil || !strings.HasSuffix(out, want) {
		t.Errorf("%s (%v)\nwant\n%s", out, err, want)
	}
}
