package standard_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// readsTexts are policies that read the texts of pods and nodes: of pods the annotations below, of nodes the annotation and label x.
var readsTexts = []struct{ kind, config string }{
	{"PodLimit", `{max: 3, maxFrom: {label: x}, selector: {}}`},
	{"Cost", `{scoringStrategy: {type: NodeCost}, prices: [{priceFrom: {annotation: x}}]}`},
	{"Licenses", `{features: [{name: solver, seats: 5}]}`},
	{"Devices", `{resource: example.com/counted, capacityFrom: {annotation: x}}`},
	{"Devices", `{resource: example.com/named, units: Named, unitsFrom: {annotation: x}, groupsFrom: {annotation: x}, resultAnnotation: k}`},
	{"GPUMemory", `{sizesFrom: {annotation: x}, modelAnnotation: k, multiGPU: true}`},
	{"HardwareHealth", `{tolerationAnnotation: k, rules: [{name: kernel, nodeCondition: {type: KernelDeadlock}, reject: true}]}`},
}

var podAnnotations = []string{"k", "outboard.dev/licenses", "scheduler.framework.gpushare.allocation", "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_ASSIGNED"}

// FuzzTextsOfPodsAndNodes evaluates a pod on a node with another pod, where all annotations and labels that policies read are any texts.
// No policy panics, and totals are in their range.
func FuzzTextsOfPodsAndNodes(f *testing.F) {
	for _, texts := range [][3]string{
		{"", "", ""}, {"1", "0", "8"}, {"solver=2", "solver=9", "16,16"}, {"0,1", `{"c":{"0":4,"1":4}}`, "a:1,b:2"}, {"true", "-1", "1e9"},
		{"a,b", "a", "a,b,c;d"}, {"kernel", `{"c":{"9":1}}`, "0.5"}, {"1Gi", "99999999999999999999", "\xff"},
	} {
		f.Add(texts[0], texts[1], texts[2])
	}
	var members []engine.WeightedPolicy
	for i, p := range readsTexts {
		kind := standard.Types()[slices.IndexFunc(standard.Types(), func(t policy.Type) bool { return t.Name == p.kind })]
		members = append(members, engine.WeightedPolicy{Name: p.kind + strconv.Itoa(i), Policy: policytest.Build(f, kind, p.config), Weight: 1})
	}
	e, err := engine.New(engine.Options{Policies: members})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, ofPod, ofOther, ofNode string) {
		eight := corev1.ResourceList{}
		for _, name := range []corev1.ResourceName{"example.com/counted", "example.com/named", "aliyun.com/gpu-mem", "aliyun.com/gpu-count"} {
			eight[name] = *resource.NewQuantity(8, resource.DecimalSI)
		}
		var b snapshot.Builder
		b.SetNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", Annotations: map[string]string{"x": ofNode}, Labels: map[string]string{"x": ofNode}},
			Status:     corev1.NodeStatus{Capacity: eight, Allocatable: eight},
		})
		other := withTexts("other", ofOther)
		other.Spec.NodeName = "n"
		b.SetPod(other)
		view, pod := b.View(), withTexts("pod", ofPod)
		req := engine.Request{Pod: pod, View: view, Nodes: []*snapshot.Node{view.Node("n")}}
		var result engine.Result
		for _, call := range []func(context.Context, engine.Request, *engine.Result) error{e.Filter, e.Score} {
			failure := new(engine.PolicyError)
			if err := call(t.Context(), req, &result); errors.As(err, &failure) && failure.Stack != nil {
				t.Fatalf("%v\n%s", err, failure.Stack)
			}
		}
		for _, total := range result.Totals {
			if total < 0 || total > result.Record.MaxTotal {
				t.Errorf("total %d of at most %d", total, result.Record.MaxTotal)
			}
		}
		e.Planned(view, pod, req.Nodes[0], time.Unix(0, 0))
	})
}

// withTexts returns a pod with the text in all annotations that policies read.
func withTexts(name, text string) *corev1.Pod {
	pod := busyPod(0)
	pod.Name, pod.UID, pod.ResourceVersion = name, types.UID(name), ""
	pod.Annotations = map[string]string{}
	for _, key := range podAnnotations {
		pod.Annotations[key] = text
	}
	pod.Labels["aliyun.com/gpu-count"] = text
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
		"aliyun.com/gpu-mem": resource.MustParse("2"), "example.com/counted": resource.MustParse("1"), "example.com/named": resource.MustParse("1"),
	}
	return pod
}
