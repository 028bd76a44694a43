package extender_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
)

// A pod that requests none of the managedResources gets the response that has no effect, and the record says so; a pod that
// requests one of them is evaluated.
func TestUnmanagedPods(t *testing.T) {
	victim := somePod()
	victim.Name, victim.UID, victim.Spec.NodeName = "victim", "u2", "wrong"
	asks := somePod()
	asks.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}}}}
	for _, tt := range []struct {
		name      string
		pod       *corev1.Pod
		unmanaged bool
		fit       []string
		scored    bool
		preempted int
	}{
		{"unmanaged", somePod(), true, []string{"wrong", "better", "new", "good", "full"}, false, 2},
		{"managed", asks, false, []string{"better", "good"}, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, &fakeCluster{view: view(threeNodes, victim), pods: []*corev1.Pod{tt.pod, victim}}, func(_ *engine.Options, o *extender.Options) {
				o.ManagedResources = []string{"example.com/fpga", "example.com/gpu"}
			})
			fit := decode[extenderv1.ExtenderFilterResult](t, s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: tt.pod, NodeNames: names("wrong", "better", "new", "good", "full")})))
			if !slices.Equal(*fit.NodeNames, tt.fit) || tt.unmanaged && len(fit.FailedNodes)+len(fit.FailedAndUnresolvableNodes) > 0 {
				t.Errorf("filter returned %+v", fit)
			}
			sum := int64(0)
			for _, score := range decode[extenderv1.HostPriorityList](t, s.post(t, "prioritize", encode(t, extenderv1.ExtenderArgs{Pod: tt.pod, NodeNames: names("better", "good", "full")}))) {
				sum += score.Score
			}
			if (sum > 0) != tt.scored {
				t.Errorf("the scores sum up to %d", sum)
			}
			preempt := extenderv1.ExtenderPreemptionArgs{Pod: tt.pod, NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{
				"wrong": {Pods: []*extenderv1.MetaPod{{UID: "u2"}}}, "created a moment ago": {Pods: []*extenderv1.MetaPod{{UID: "u3"}}},
			}}
			if got := decode[extenderv1.ExtenderPreemptionResult](t, s.post(t, "preempt", encode(t, preempt))); len(got.NodeNameToMetaVictims) != tt.preempted {
				t.Errorf("preempt returned %+v", got)
			}
			records := s.log.Find(decision.Query{Namespace: "default", Name: "p", Limit: 10})
			if len(records) != 3 {
				t.Fatalf("got %d records", len(records))
			}
			for _, r := range records {
				var text bytes.Buffer
				if err := r.Text(&text); err != nil {
					t.Fatal(err)
				}
				if r.Unmanaged != tt.unmanaged || strings.Contains(text.String(), "none of the profile's managedResources") != tt.unmanaged {
					t.Errorf("the record of %s has Unmanaged %v:\n%s", r.Verb, r.Unmanaged, text.String())
				}
			}
		})
	}
}
