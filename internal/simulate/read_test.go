package simulate

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestReadManifests(t *testing.T) {
	o, err := ReadManifests(strings.NewReader(`
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a}, status: {capacity: {cpu: 4}}}
- {apiVersion: v1, kind: Pod, metadata: {name: runs, namespace: x}, spec: {nodeName: a, containers: [{name: c, resources: {limits: {cpu: 2, memory: 3}, requests: {cpu: 1}}}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: done}, spec: {nodeName: a}, status: {phase: Succeeded}}
---
{"apiVersion": "v1", "kind": "PodList", "items": [{"kind": "Pod", "metadata": {"name": "waits"}}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
---
`))
	if err != nil {
		t.Fatal(err)
	}
	running, waiting := o.divide()
	if len(o.Nodes) != 1 || len(running) != 1 || running[0].Name != "runs" || len(waiting) != 1 || waiting[0].Name != "waits" {
		t.Fatalf("got %d nodes, %d running pods, %d pending pods", len(o.Nodes), len(running), len(waiting))
	}
	if n := o.Nodes[0]; n.UID != "a" || n.Status.Allocatable.Cpu().Value() != 4 {
		t.Errorf("the defaults of the API server are missing: %+v", n)
	}
	if p := waiting[0]; p.Namespace != "default" || p.UID != "default/waits" {
		t.Errorf("%s %s", p.Namespace, p.UID)
	}
	if requested := running[0].Spec.Containers[0].Resources.Requests; requested.Cpu().Value() != 1 || requested.Memory().Value() != 3 {
		t.Errorf("got requests %v", requested)
	}
	again := Again(running)[0].Pod
	if again.Spec.NodeName != "" || running[0].Spec.NodeName != "a" {
		t.Errorf("again on %q, running on %q", again.Spec.NodeName, running[0].Spec.NodeName)
	}
}

func TestManifestsThatAreWrong(t *testing.T) {
	for name, text := range map[string]string{
		"no YAML":           "a: [",
		"no kind":           "metadata: {name: a}",
		"no mapping":        "- a",
		"a bad quantity":    "{kind: Node, metadata: {name: a}, status: {capacity: {cpu: lots}}}",
		"two nodes alike":   "{kind: Node, metadata: {name: a}}\n---\n{kind: Node, metadata: {name: a}}",
		"a nameless node":   "kind: Node",
		"a nameless pod":    "kind: Pod",
		"two pods alike":    "{kind: Pod, metadata: {name: a}}\n---\n{kind: Pod, metadata: {name: a}}",
		"a list of nothing": "{kind: List, items: [7]}",
	} {
		if o, err := ReadManifests(strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error, %+v", name, o)
		}
	}
}

const (
	traceNodes = "sn,cpu_milli,memory_mib,gpu,model\nnode-1,64000,262144,2,P100\nnode-2,96000,1024,0,\n"
	tracePods  = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n" +
		"pod-1,6000,12288,1,460,,LS,Running,100,160,100\npod-2,12000,16384,2,1000,V100M16|V100M32,LS,Running,0,5,\npod-3,500,1,0,0,,BE,Running,0,5,0\n"
)

func TestReadOpenB(t *testing.T) {
	o, none, err := ReadOpenB(strings.NewReader(traceNodes))
	if err != nil || len(o.Nodes) != 2 || len(none) != 0 {
		t.Fatalf("got %d nodes, %d jobs (%v)", len(o.Nodes), len(none), err)
	}
	n := o.Nodes[0]
	if n.Name != "node-1" || n.Labels[modelLabel] != "P100" || n.Status.Allocatable.Cpu().MilliValue() != 64000 || n.Status.Allocatable.Memory().Value() != 256<<30 {
		t.Errorf("%+v", n)
	}
	if gpus, unit := Count(o.Nodes, gpuMemory); gpus != 2 || unit != "GPUs" || demand(&corev1.Pod{}, gpuMemory) != 0 {
		t.Errorf("%v %s", gpus, unit)
	}
	if cores, unit := Count(o.Nodes, "cpu"); cores != 160 || unit != "cpu" {
		t.Errorf("%v %s", cores, unit)
	}
	_, jobs, err := ReadOpenB(strings.NewReader(tracePods))
	if err != nil || len(jobs) != 3 {
		t.Fatalf("got %d jobs (%v)", len(jobs), err)
	}
	if j := jobs[0]; demand(j.Pod, gpuMemory) != 460 || j.Created != 100*time.Second || j.Lifetime != time.Minute || len(j.Pod.Annotations) != 0 {
		t.Errorf("%+v", j)
	}
	if p := jobs[1].Pod; demand(p, gpuMemory) != 2000 || p.Labels[gpuCount] != "2" || p.Annotations[modelAnnotation] != "V100M16,V100M32" {
		t.Errorf("%+v", p)
	}
	if demand(jobs[2].Pod, gpuMemory) != 0 || demand(jobs[2].Pod, "cpu") != 500 {
		t.Error("the pod has no GPUs")
	}
	_, jobs, err = ReadOpenB(strings.NewReader("name,cpu_milli,memory_mib,num_gpu,gpu_milli\npod-1,6000,12288,1,460\n"))
	if err != nil || len(jobs) != 1 {
		t.Fatalf("without models and times: %d jobs (%v)", len(jobs), err)
	}
	if j := jobs[0]; demand(j.Pod, gpuMemory) != 460 || j.Created != 0 || j.Lifetime != 0 || len(j.Pod.Annotations) != 0 {
		t.Errorf("without models and times: %+v", j)
	}
}

func TestTablesThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "header",
		"a,b\n1,2\n":                   "a, b",
		traceNodes + "node-3,x,1,1,T4": `line 4: cpu_milli is "x"`,
		traceNodes + "node-3,-5,1,1,":  `line 4: cpu_milli is "-5"`,
		traceNodes + "node-3,5,1":      "wrong number of fields",
		traceNodes + "node-1,5,1,1,T4": `"node-1"`,
	} {
		if _, _, err := ReadOpenB(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestReports(t *testing.T) {
	one := &Filled{Curve: []Point{{0, 0}, {1, 0.9}, {1.3, 0.9}}, FirstRejected: 0.8, Rejected: 7, GPUs: []float64{1, 0.5, 0}}
	two := &Filled{Curve: []Point{{0, 0}, {1, 1}, {1.3, 1}}, GPUs: []float64{1, 1, 1}}
	arms := []Arm{{Name: "a<b", Filled: []*Filled{one, two}}, {Name: "c", Filled: []*Filled{two}}}
	var b strings.Builder
	if err := FilledReport(arms, 1.3, 100, "GPUs").Write(&b, Text); err != nil {
		t.Fatal(err)
	}
	const table = "allocated % at arrived %  80          90          95          100         110         120         130         first rejected at %  unallocated GPUs  rejected pods\n" +
		"a<b                       76.00±5.66  85.50±6.36  90.25±6.72  95.00±7.07  95.00±7.07  95.00±7.07  95.00±7.07  80.00 (in 1 of 2)    5.0±7.1           4±5\n" +
		"c                         80.00       90.00       95.00       100.00      100.00      100.00      100.00      none                 0.0               0\n"
	if b.String() != table {
		t.Errorf("got\n%swant\n%s", b.String(), table)
	}
	b.Reset()
	if err := ReplayedReport([]Arm{{Name: "a", Replayed: []*Replayed{{Requested: 0.95, Served: 0.99, Pods: 200, Delayed: 3, Waited: 1500 * time.Millisecond, Waiting: 2}}}}).Write(&b, Text); err != nil {
		t.Fatal(err)
	}
	if want := "requested %  served %  pods  delayed %  mean wait  waiting at the end\na  95.00        99.00     200   1.50       1.50 s     2.0\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// figures of two arms, the first with two seeds; nothing was rejected with one of them.
func figures() *Report {
	one := &Filled{Curve: []Point{{0, 0}, {1, 0.9}, {1.3, 0.9}}, FirstRejected: 0.8, Rejected: 7}
	two := &Filled{Curve: []Point{{0, 0}, {1, 1}, {1.3, 1}}}
	r := FilledReport([]Arm{{Name: "a, or b|c", Filled: []*Filled{one, two}}}, 0.8, 100, "GPUs")
	r.Notes, r.FirstSeed = []string{"2 nodes.", "Pods come."}, 42
	return r
}

func TestReportFormats(t *testing.T) {
	for format, want := range map[Format]string{
		Markdown: "2 nodes. Pods come.\n\n" +
			"| allocated % at arrived % | 80 | first rejected at % | unallocated GPUs | rejected pods |\n|---|---:|---:|---:|---:|\n" +
			"| a, or b\\|c | 76.00±5.66 | 80.00 (in 1 of 2) | 5.0±7.1 | 4±5 |\n",
		CSV: "configuration,seed,allocatedPercentAt80,firstRejectedAtPercent,unallocated,rejectedPods\n\"a, or b|c\",42,72,80,10,7\n\"a, or b|c\",43,80,,0,0\n",
		JSON: `{"notes":["2 nodes.","Pods come."],"configurations":[{"name":"a, or b|c","seeds":[` +
			`{"seed":42,"figures":{"allocatedPercentAt80":72,"firstRejectedAtPercent":80,"rejectedPods":7,"unallocated":10}},` +
			`{"seed":43,"figures":{"allocatedPercentAt80":80,"firstRejectedAtPercent":null,"rejectedPods":0,"unallocated":0}}]}]}`,
	} {
		var b, compact bytes.Buffer
		if err := figures().Write(&b, format); err != nil {
			t.Fatal(err)
		}
		got := b.String()
		if format == JSON {
			if err := json.Compact(&compact, b.Bytes()); err != nil {
				t.Fatal(err)
			}
			got = compact.String()
		}
		if got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", format, got, want)
		}
	}
}

func TestProgress(t *testing.T) {
	var b strings.Builder
	now := time.Unix(100, 0)
	p := &Progress{W: &b, Terminal: true, Every: time.Second, Now: func() time.Time { return now }}
	tell := p.Of("x")
	tell(0.1)
	tell(0.2)
	now = now.Add(time.Second)
	tell(2)
	p.Done("x", "well")
	if got := b.String(); strings.Contains(got, "20 %") || !strings.Contains(got, "x:  10 %") || !strings.Contains(got, "x: 100 %") || !strings.Contains(got, "x: well") {
		t.Errorf("%q", got)
	}
	b.Reset()
	p = &Progress{W: &b, Every: time.Second, Now: func() time.Time { return now }}
	p.Of("x")(0.1)
	p.Done("x", "well")
	if got := b.String(); got != "x: well\n" {
		t.Errorf("in a file: %q", got)
	}
}
