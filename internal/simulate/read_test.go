package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
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
	again := Again(running)[0]
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

func TestReport(t *testing.T) {
	one := &Filled{Curve: []Point{{0, 0}, {1, 0.9}, {1.3, 0.9}}, FirstRejected: 0.8, Rejected: 7}
	two := &Filled{Curve: []Point{{0, 0}, {1, 1}, {1.3, 1}}}
	r := &Report{
		Notes: []string{"2 nodes."}, FirstSeed: 42,
		Arms: []Arm{{Name: "a<b", Filled: []*Filled{one, two}}, {Name: "c", Filled: []*Filled{two}}},
	}
	const table = "2 nodes.\n" +
		"allocated % at arrived %  80          90          95          100         110         120         130         first rejected at %  rejected pods\n" +
		"a<b                       76.00±5.66  85.50±6.36  90.25±6.72  95.00±7.07  95.00±7.07  95.00±7.07  95.00±7.07  80.00 (in 1 of 2)    4±5\n" +
		"c                         80.00       90.00       95.00       100.00      100.00      100.00      100.00      none                 0\n"
	var b strings.Builder
	if err := r.WriteText(&b); err != nil || b.String() != table {
		t.Errorf("got\n%s(%v), want\n%s", b.String(), err, table)
	}
	var data, compact bytes.Buffer
	if err := errors.Join(r.WriteJSON(&data), json.Compact(&compact, data.Bytes())); err != nil {
		t.Fatal(err)
	}
	const want = `{"seed":43,"figures":{"allocatedPercentAt100":100,"allocatedPercentAt110":100,"allocatedPercentAt120":100,` +
		`"allocatedPercentAt130":100,"allocatedPercentAt80":80,"allocatedPercentAt90":90,"allocatedPercentAt95":95,` +
		`"firstRejectedAtPercent":null,"rejectedPods":0}}`
	if got := compact.String(); !strings.HasPrefix(got, `{"notes":["2 nodes."],"configurations":[{"name":"a\u003cb","seeds":[{"seed":42,`) || !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
