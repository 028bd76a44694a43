package extender_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
)

// Bind acts only for pods of its profile, and sends no Binding that violates kube-scheduler's own rules.
func TestBindIsNoWayAroundTheScheduler(t *testing.T) {
	gpus := corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	of := func(requests, limits corev1.ResourceList) []corev1.Container {
		return []corev1.Container{{Name: "plain"}, {Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}}
	}
	taint := func(key string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Value: "v", Effect: effect}
	}
	tolerate := func(p *corev1.Pod, key string) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	requiring := func(value string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{value}},
			}}},
		}}}
	}
	managed, schedulers := []string{"example.com/gpu", "example.com/fpga"}, []string{"gpu-scheduler", "default-scheduler"}
	for _, tt := range []struct {
		name       string
		managed    []string
		schedulers []string
		pod        func(*corev1.Pod)
		node       func(*corev1.Node)
		want       string // "": the pod is bound
	}{
		{name: "nothing is set"},
		{name: "a limit of a container", managed: managed, pod: func(p *corev1.Pod) { p.Spec.Containers = of(nil, gpus) }},
		{name: "a request of a container", managed: managed, pod: func(p *corev1.Pod) { p.Spec.Containers = of(gpus, nil) }},
		{name: "a limit of an init container", managed: managed, pod: func(p *corev1.Pod) { p.Spec.InitContainers = of(nil, gpus) }},
		{name: "a limit of 0", managed: managed, pod: func(p *corev1.Pod) {
			p.Spec.Containers = of(nil, corev1.ResourceList{"example.com/fpga": resource.MustParse("0")})
		}},
		{
			name: "none of the managed resources", managed: managed,
			pod: func(p *corev1.Pod) {
				p.Spec.Containers = of(nil, corev1.ResourceList{"example.com/other": resource.MustParse("1")})
				p.Spec.Resources = &corev1.ResourceRequirements{Limits: gpus} // kube-scheduler ignores these
			},
			want: "pod default/p requests none of the managedResources of profile /: example.com/gpu, example.com/fpga",
		},
		{name: "one of the schedulers", schedulers: schedulers, pod: func(p *corev1.Pod) { p.Spec.SchedulerName = "gpu-scheduler" }},
		{name: "the default scheduler", schedulers: schedulers},
		{
			name: "another scheduler", schedulers: schedulers, pod: func(p *corev1.Pod) { p.Spec.SchedulerName = "theirs" },
			want: `pod default/p has schedulerName "theirs", which is not among the schedulerNames of profile /: gpu-scheduler, default-scheduler`,
		},
		{
			name: "a taint", node: func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{taint("soft", corev1.TaintEffectPreferNoSchedule), taint("hard", corev1.TaintEffectNoSchedule)}
			},
			want: `pod default/p cannot run on node "better": node(s) had untolerated taint(s)`,
		},
		{
			name: "a taint that evicts", node: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint("gone", corev1.TaintEffectNoExecute)} },
			want: `pod default/p cannot run on node "better": node(s) had untolerated taint(s)`,
		},
		{
			name: "a taint that is tolerated", pod: func(p *corev1.Pod) { tolerate(p, "hard") },
			node: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint("hard", corev1.TaintEffectNoSchedule)} },
		},
		{
			name: "unschedulable", node: func(n *corev1.Node) { n.Spec.Unschedulable = true },
			want: `pod default/p cannot run on node "better": node(s) were unschedulable`,
		},
		{
			name: "unschedulable, and tolerated", pod: func(p *corev1.Pod) { tolerate(p, corev1.TaintNodeUnschedulable) },
			node: func(n *corev1.Node) { n.Spec.Unschedulable = true },
		},
		{
			name: "a scheduling gate", pod: func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}} },
			want: "pod default/p has scheduling gates",
		},
		{name: "a nodeSelector that matches", pod: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "east"} }},
		{
			name: "a nodeSelector that does not", pod: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "west"} },
			want: `pod default/p cannot run on node "better": node(s) didn't match Pod's node affinity/selector`,
		},
		{name: "a node affinity that matches", pod: func(p *corev1.Pod) { p.Spec.Affinity = requiring("east") }},
		{
			name: "a node affinity that does not", pod: func(p *corev1.Pod) { p.Spec.Affinity = requiring("west") },
			want: `pod default/p cannot run on node "better": node(s) didn't match Pod's node affinity/selector`,
		},
		{name: "an affinity of another kind", pod: func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := somePod()
			pod.UID = "p" // as in bindTo
			node := labelled("better", "zone", "east")
			if tt.pod != nil {
				tt.pod(pod)
			}
			if tt.node != nil {
				tt.node(node)
			}
			cluster := &fakeCluster{view: view([]*corev1.Node{node}), pods: []*corev1.Pod{pod}}
			s := serve(t, cluster, func(_ *engine.Options, o *extender.Options) {
				o.ManagedResources, o.SchedulerNames = tt.managed, tt.schedulers
			})
			if got := bindTo(t, s, "p", "better"); got != tt.want {
				t.Errorf("got response %q, want %q", got, tt.want)
			}
			if got := len(cluster.bindings) == 1; got != (tt.want == "") {
				t.Errorf("Bindings: %+v", cluster.bindings)
			}
			// Binding a pod that is already bound to the node succeeds, whatever has changed since.
			bound := pod.DeepCopy()
			bound.Spec.NodeName, bound.DeletionTimestamp = "better", &metav1.Time{}
			cluster.pods = []*corev1.Pod{bound}
			if got := bindTo(t, s, "p", "better"); got != "" {
				t.Errorf("already bound: got response %q", got)
			}
		})
	}
}
