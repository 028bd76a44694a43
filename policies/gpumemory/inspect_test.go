package gpumemory_test

import (
	"encoding/json"
	"testing"

	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// TestInspect: the response has what tools for gpushare expect, also for a node that does not
// exist.
func TestInspect(t *testing.T) {
	var builder snapshot.Builder
	builder.SetNode(gpuNode("n", 2, 16))
	builder.SetNode(gpuNode("without", 0, 0))
	for name, sizes := range map[string]string{"words": "80GiB,16GiB", "few": "80"} {
		invalid := gpuNode(name, 2, 16)
		invalid.Annotations = map[string]string{"sizes": sizes}
		builder.SetNode(invalid)
	}
	builder.SetPod(placed("p", 6, "1"))
	view := builder.View()
	inspector := build(t, `{sizesFrom: {annotation: sizes}}`).(policy.Inspector)
	const all = `{"nodes":[{"name":"n","totalGPU":32,"usedGPU":6,"devs":[` +
		`{"id":0,"totalGPU":16,"usedGPU":0,"pods":[]},` +
		`{"id":1,"totalGPU":16,"usedGPU":6,"pods":[{"name":"p","namespace":"default","usedGPU":6}]}]}]}`
	for path, want := range map[string]string{
		"inspect":         all,
		"inspect/n":       all,
		"inspect/without": `{"nodes":[],"error":"node \"without\" shares no GPUs"}`,
		"inspect/unknown": `{"nodes":[],"error":"node \"unknown\" not found"}`,
		"gpus/n": `{"unit":"GiB","nodes":[{"name":"n","gpus":[` +
			`{"index":0,"capacity":16,"used":0,"reserved":0,"healthy":true,"pods":null},` +
			`{"index":1,"capacity":16,"used":6,"reserved":0,"healthy":true,"pods":[{"namespace":"default","name":"p","uid":"uid-p","amount":6}]}]}]}`,
		"gpus/words": `{"unit":"GiB","nodes":[{"name":"words","problem":"InvalidGPUs",` +
			`"reported":"annotation sizes is \"80GiB,16GiB\", and must be whole numbers, at most 64","gpus":null}]}`,
		"gpus/few": `{"unit":"GiB","nodes":[{"name":"few","problem":"InvalidGPUs",` +
			`"reported":"annotation sizes is \"80\", and must be as many numbers as aliyun.com/gpu-count, 2","gpus":null}]}`,
		"gpus/unknown": `{"unit":"GiB","nodes":[],"error":"node \"unknown\" not found"}`,
		"other":        "",
	} {
		answer, found := inspector.Inspect(view, path)
		if want == "" {
			if found {
				t.Errorf("%s: there is a response", path)
			}
			continue
		}
		got, err := json.Marshal(answer)
		if err != nil || !found || string(got) != want {
			t.Errorf("%s: found %v, %v\ngot  %s\nwant %s", path, found, err, got, want)
		}
	}
}

// A pod that requests GPUs, and of which nothing says which ones it has, is shown beside the GPUs. A node's only GPU must be the pod's.
func TestInspectShowsUnannotatedPods(t *testing.T) {
	var builder snapshot.Builder
	builder.SetNode(gpuNode("n", 2, 16))
	builder.SetNode(gpuNode("single", 1, 16))
	builder.SetPod(placed("known", 6, "1"))
	for _, name := range []string{"n", "single"} {
		pod := placed("on-"+name, 4, "")
		pod.Spec.NodeName, pod.Annotations = name, nil
		builder.SetPod(pod)
		other := placed("without-gpu-on-"+name, 0, "")
		other.Spec.NodeName, other.Annotations = name, nil
		builder.SetPod(other)
	}
	view, inspector := builder.View(), build(t, `{}`).(policy.Inspector)
	for node, want := range map[string]string{"n": `[{"namespace":"default","name":"on-n","uid":"uid-on-n","amount":4}]`, "single": "null"} {
		report, _ := inspector.Inspect(view, "gpus/"+node)
		got, err := json.Marshal(report.(gpumemory.Report).Nodes[0].Unannotated)
		if err != nil || string(got) != want {
			t.Errorf("%s: %v, got %s, want %s", node, err, got, want)
		}
	}
}
