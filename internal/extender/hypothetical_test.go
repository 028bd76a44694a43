package extender_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
)

// A node that exists only in a call is evaluated like the same node in a cluster where it has no pods, whatever pods run on the
// node that it was made from, and the response has it as the call had it.
func TestHypotheticalNodesAreEmpty(t *testing.T) {
	original := gpuNode("n00", 2)
	template := original.DeepCopy()
	template.Name = "template"
	other := gpuNode("template-2", 1)
	other.Labels = map[string]string{"nvidia.com/gpu.product": "A100"}
	pods := []*corev1.Pod{on(sharing("a", 0, 16), "n00", "0"), on(sharing("b", 0, 16), "n00", "1")}
	full := serveGPUMemory(t, &fakeCluster{view: view([]*corev1.Node{original}, pods...)}, newLedgerStore())
	empty := serveGPUMemory(t, &fakeCluster{view: view([]*corev1.Node{template, other})}, newLedgerStore())
	for _, gibibytes := range []int64{1, 10, 16, 17} {
		args := extenderv1.ExtenderArgs{Pod: sharing("p", 0, gibibytes), Nodes: &corev1.NodeList{Items: []corev1.Node{*template, *other}}}
		for _, verb := range []string{"filter", "prioritize"} {
			body := encode(t, args)
			if want, got := empty.post(t, verb, body), full.post(t, verb, body); got != want {
				t.Errorf("%s for %d GiB: %s, in a cluster with these nodes %s", verb, gibibytes, got, want)
			}
		}
	}
	if records := full.log.Find(decision.Query{Namespace: "default", Name: "p", Limit: 1}); len(records) > 0 {
		t.Errorf("the record has nodes that do not exist: %+v", records[0])
	}
	args := extenderv1.ExtenderArgs{Pod: sharing("p", 0, 1), Nodes: &corev1.NodeList{Items: []corev1.Node{*original}}}
	if got := decode[extenderv1.ExtenderFilterResult](t, full.post(t, "filter", encode(t, args))); len(got.FailedAndUnresolvableNodes) != 1 {
		t.Errorf("the node that exists: got %+v", got)
	}
}

// A pod that fits on no existing node stays pending, although it fits on a node that exists only in the call.
func TestPodThatFitsOnHypotheticalNodesStaysPending(t *testing.T) {
	var heard []string
	s := serve(t, &fakeCluster{view: view(threeNodes)}, func(_ *engine.Options, o *extender.Options) {
		o.Filtered = func(_ engine.Request, fits bool, _ []string, _ *decision.Rejection) {
			heard = append(heard, fmt.Sprint(fits))
		}
	})
	for _, nodes := range [][]*corev1.Node{
		{labelled("template")},
		{labelled("template", "say", "wrong")},
		{labelled("wrong"), labelled("template")},
		{labelled("wrong"), labelled("template", "say", "wrong")},
		{labelled("good"), labelled("template")},
	} {
		list := &corev1.NodeList{}
		for _, n := range nodes {
			list.Items = append(list.Items, *n)
		}
		s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: somePod(), Nodes: list}))
	}
	if want := []string{"false", "true"}; !slices.Equal(heard, want) {
		t.Errorf("got %q, want %q", heard, want)
	}
}
