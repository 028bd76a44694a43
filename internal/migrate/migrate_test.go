package migrate_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/migrate"
	"outboard.dev/outboard/internal/simulate"
)

const pods = `
kind: Pod
metadata: {name: web-5d-1, namespace: a, labels: {pod-template-hash: 5d}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-5d, uid: x, controller: true}]}
spec: {nodeName: node, containers: [{name: main, resources: {limits: {aliyun.com/gpu-mem: 10}}}, {name: proxy}]}
---
kind: Pod
metadata: {name: web-5d-2, namespace: a, labels: {pod-template-hash: 5d}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-5d, uid: x, controller: true}]}
spec: {containers: [{name: main, resources: {limits: {aliyun.com/gpu-mem: 10}}}]}
---
kind: Pod
metadata: {name: db-0, namespace: a, annotations: {outboard.dev/gpu-models: A10}, ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: db, uid: w, controller: true}]}
spec: {nodeName: node, containers: [{name: main, resources: {limits: {aliyun.com/gpu-mem: 10}}}]}
---
{kind: Pod, metadata: {name: four, namespace: b, labels: {aliyun.com/gpu-count: "4"}}, spec: {containers: [{name: main, resources: {limits: {aliyun.com/gpu-mem: 20}}}]}}
---
{kind: Pod, metadata: {name: whole, namespace: b}, spec: {priority: 7, containers: [{name: main, resources: {limits: {aliyun.com/gpu-count: 2}}}]}}
---
{kind: Pod, metadata: {name: several, namespace: b}, spec: {containers: [{name: one, resources: {limits: {aliyun.com/gpu-mem: 2}}}, {name: two, resources: {limits: {aliyun.com/gpu-mem: 3}}}]}}
---
{kind: Pod, metadata: {name: uneven, namespace: b, labels: {aliyun.com/gpu-count: "2"}}, spec: {containers: [{name: main, resources: {limits: {aliyun.com/gpu-mem: 5}}}]}}
---
{kind: Pod, metadata: {name: wrong, namespace: b, labels: {aliyun.com/gpu-count: many}}, spec: {containers: [{name: main, resources: {limits: {aliyun.com/gpu-mem: 5}}}]}}
---
{kind: Pod, metadata: {name: done, namespace: b}, spec: {containers: [{name: main, resources: {limits: {aliyun.com/gpu-mem: 3}}}]}, status: {phase: Succeeded}}
---
{kind: Pod, metadata: {name: other, namespace: b}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}
`

var options = migrate.Options{Class: "shared-gpu", Driver: "gpu.example.com", Capacity: "memory", Unit: "Gi", ModelAnnotation: "outboard.dev/gpu-models"}

func read(t *testing.T, text string) *simulate.Objects {
	t.Helper()
	o, err := simulate.ReadManifests(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return o
}

func TestText(t *testing.T) {
	var b strings.Builder
	if err := migrate.Of(read(t, pods).Pods, options).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	want := `DeviceClass shared-gpu: device.driver == "gpu.example.com"

NAMESPACE  TEMPLATE      GPUS                      PODS  OF              CONTAINERS
a          gpu-10gi      1 with 10Gi of its memory  2     Deployment web  main
a          gpu-10gi      1 with 10Gi of its memory  1     StatefulSet db  main
b          gpu-5gi       1 with 5Gi of its memory   1     Pod several     one, two
b          gpu-5gi-x4    4 with 5Gi of its memory   1     Pod four        main
b          gpu-whole-x2  2 whole                    1     Pod whole       main

In each pod spec, remove aliyun.com/gpu-mem and aliyun.com/gpu-count, and add the following, with the name of the template:
  spec:
    resourceClaims: [{name: gpu, resourceClaimTemplateName: TEMPLATE}]
    containers:
    - {name: CONTAINER, resources: {claims: [{name: gpu}]}}

Without an equivalent, or for you to decide:
- Pod b/several: the containers one, two request GPUs of their own: with the template, they share all devices of the claim
- Pod b/uneven: 5 of memory cannot be divided by 2 GPUs
- Pod b/whole: it has priority 7: kube-scheduler evicts no pods to free devices for claims
- Pod b/whole: it requests whole GPUs: a claim without an amount takes all memory, unless the driver publishes a smaller default
- Pod b/wrong: it requests GPUs in a number from which no claim can be made: the maximum is 32
- StatefulSet a/db: it allows only the GPU models A10: write a selector for the driver's attribute into the template, such as productName, whose values differ from those of the node label
`
	want = strings.Replace(want, "GPUS                      PODS", "GPUS                       PODS", 1)
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	b.Reset()
	if err := migrate.Of(nil, options).WriteText(&b); err != nil || !strings.HasPrefix(b.String(), "no pod requests") {
		t.Errorf("%s (%v)", &b, err)
	}
}

// With the objects and the change of the pod spec, the pods have devices.
func TestChangedPodsHaveDevices(t *testing.T) {
	plan := migrate.Of(read(t, pods).Pods, options)
	var b strings.Builder
	if err := plan.WriteYAML(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Deployment a/web: remove aliyun.com/gpu-mem and aliyun.com/gpu-count, and add:\n#   spec:\n#     resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu-10gi}]\n#     containers:\n#     - {name: main, resources: {claims: [{name: gpu}]}}\n",
		"# Pod b/uneven: 5 of memory",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("there is no\n%sin\n%s", want, &b)
		}
	}
	objects := read(t, b.String()+`---
{kind: Node, metadata: {name: node}, status: {capacity: {cpu: 8, memory: 64Gi, pods: 110}}}
---
kind: ResourceSlice
metadata: {name: node}
spec: {driver: gpu.example.com, nodeName: node, pool: {name: node, resourceSliceCount: 1}, devices: [
  {name: g0, allowMultipleAllocations: true, capacity: {memory: {value: 40Gi}}}, {name: g1, allowMultipleAllocations: true, capacity: {memory: {value: 40Gi}}},
  {name: g2, allowMultipleAllocations: true, capacity: {memory: {value: 40Gi}}}, {name: g3, allowMultipleAllocations: true, capacity: {memory: {value: 40Gi}}}]}
`)
	if n := len(objects.Devices.Templates); n != 4 || len(objects.Devices.Classes) != 1 {
		t.Fatalf("there are %d templates in\n%s", n, &b)
	}
	w := &simulate.World{Nodes: objects.Nodes, Devices: objects.Devices}
	for i, want := range [][]string{{"g0"}, {"g0"}, {"g0", "g1", "g2", "g3"}, {"g0", "g1"}} {
		template := plan.Templates[i].Object
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name, pod.UID = template.Namespace, "p", "p"
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template.Name}}
		placed, err := w.Place(t.Context(), []simulate.Job{{Pod: pod}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range placed[0].Devices {
			got = append(got, d.Device)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v (%v)", template.Name, got, want, placed[0].Reasons)
		}
	}
}

func TestNVIDIADriverHasOtherDevices(t *testing.T) {
	o := options
	o.Driver = "gpu.nvidia.com"
	if got := migrate.Of(nil, o).Class.Spec.Selectors[0].CEL.Expression; got != `device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu"` {
		t.Error(got)
	}
}

// An init container ends before the others start, so its share is not added to theirs.
func TestInitContainers(t *testing.T) {
	pod := `{kind: Pod, metadata: {name: p, namespace: a}, spec: {
  initContainers: [{name: load, resources: {limits: {aliyun.com/gpu-mem: 8}}}],
  containers: [{name: main, resources: {limits: {aliyun.com/gpu-mem: 6}}}]}}`
	plan := migrate.Of(read(t, pod).Pods, options)
	if len(plan.Templates) != 1 || plan.Templates[0].Object.Name != "gpu-8gi" {
		t.Errorf("the plan is %+v, want the template gpu-8gi", plan.Templates)
	}
}
