package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
)

// A pod of high priority evicts no other pod while it fits on a node that the plugin has not named, whatever the plugin takes for inert:
// kube-scheduler considers only the named nodes for preemption.
func TestCandidatesEvictNoPods(t *testing.T) {
	const postFilter = "    postFilter: {enabled: [{name: Outboard}]}\n"
	for _, tt := range []struct {
		name, plugins, args string
		fails               bool   // the attempt with the named node
		log                 string // of kube-scheduler
	}{
		{"FiltersRun", postFilter, "candidates: 1", false, ""},
		{"ListFails", postFilter, "candidates: 1\ninertPlugins: [NodePorts]", true, ""},
		{"PostFilterIsNotFirst", "", "candidates: 1\ninertPlugins: [NodePorts]", false, "Outboard names no candidates"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			th := open(t)
			th.nodes(
				controlplane.NodeSpec{Name: "without"},
				controlplane.NodeSpec{Name: "with", Images: map[string]int64{"registry.example/app:1": 900 << 20}},
			)
			th.priority("high", 1000)
			path, err := plugged()
			if err != nil {
				t.Fatal(err)
			}
			profile := strings.Replace(pluginEnabled, "  pluginConfig:", tt.plugins+"  pluginConfig:", 1)
			s := th.pluginIn(path, profile, tt.args+"\nprofiles: [{policies: [{type: ImageLocality}]}]")
			onPort := func(name, class string) *corev1.Pod {
				pod := controlplane.PodSpec{Name: name, Image: "registry.example/app:1", PriorityClass: class}.Pod()
				pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
				pod, err := th.Client.CoreV1().Pods(pod.Namespace).Create(th.ctx, pod, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return th.willBeBound(pod)
			}
			if low := onPort("low", ""); low.Spec.NodeName != "with" {
				t.Fatalf("low is on node %s", low.Spec.NodeName)
			}
			high := onPort("high", "high")
			if high.Spec.NodeName != "without" {
				t.Errorf("high is on node %s", high.Spec.NodeName)
			}
			low, err := th.Client.CoreV1().Pods("default").Get(th.ctx, "low", metav1.GetOptions{})
			if err != nil || low.DeletionTimestamp != nil {
				t.Errorf("low is evicted: %v", err)
			}
			const retried = "other plugins reject the best 1 node(s): the pod is retried at once with all nodes"
			if tt.fails {
				th.eventually("the event of the attempt", func() bool { return strings.Contains(th.events(high), retried) })
			} else if events := th.events(high); strings.Contains(events, "FailedScheduling") {
				t.Errorf("the events are %s", events)
			}
			if !strings.Contains(s.Log(), tt.log) {
				t.Errorf("the log does not have %q", tt.log)
			}
		})
	}
}
