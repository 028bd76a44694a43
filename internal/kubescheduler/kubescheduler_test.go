package kubescheduler_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/snapshot"
)

func TestExcludes(t *testing.T) {
	taint := func(effect corev1.TaintEffect) corev1.NodeSpec {
		return corev1.NodeSpec{Taints: []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: effect}}}
	}
	cordoned := corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}}
	all := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	zones := func(values ...string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: values},
			}}},
		}}}
	}
	for name, tt := range map[string]struct {
		pod  corev1.PodSpec
		node corev1.NodeSpec
		want string
	}{
		"anything":                 {},
		"cordoned":                 {node: cordoned, want: kubescheduler.Unschedulable},
		"cordoned, tolerated":      {pod: corev1.PodSpec{Tolerations: all}, node: cordoned},
		"tainted":                  {node: taint(corev1.TaintEffectNoSchedule), want: kubescheduler.UntoleratedTaint},
		"tainted, NoExecute":       {node: taint(corev1.TaintEffectNoExecute), want: kubescheduler.UntoleratedTaint},
		"tainted, a preference":    {node: taint(corev1.TaintEffectPreferNoSchedule)},
		"tainted, tolerated":       {pod: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "dedicated", Value: "gpu"}}}, node: taint(corev1.TaintEffectNoSchedule)},
		"tainted, other tolerated": {pod: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "dedicated", Value: "cpu"}}}, node: taint(corev1.TaintEffectNoSchedule), want: kubescheduler.UntoleratedTaint},
		"tainted, less tolerated":  {pod: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpLt, Value: "10"}}}, node: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "dedicated", Value: "5", Effect: corev1.TaintEffectNoSchedule}}}},
		"selected":                 {pod: corev1.PodSpec{NodeSelector: map[string]string{"zone": "a"}}},
		"not selected":             {pod: corev1.PodSpec{NodeSelector: map[string]string{"zone": "b"}}, want: kubescheduler.AffinityMismatch},
		"affinity":                 {pod: corev1.PodSpec{Affinity: zones("b", "a")}},
		"no affinity":              {pod: corev1.PodSpec{Affinity: zones("b", "c")}, want: kubescheduler.AffinityMismatch},
		"this node":                {pod: corev1.PodSpec{NodeName: "n"}},
		"another node":             {pod: corev1.PodSpec{NodeName: "m"}, want: kubescheduler.OtherName},
		"another, cordoned node":   {pod: corev1.PodSpec{NodeName: "m"}, node: cordoned, want: kubescheduler.OtherName},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}}, Spec: tt.node}
		if got := kubescheduler.For(&corev1.Pod{Spec: tt.pod}).Excludes(n); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestLacks(t *testing.T) {
	requesting := func(list corev1.ResourceList) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list}}}}}
	}
	of := func(cpu, gpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), "example.com/gpu": resource.MustParse(gpu)}
	}
	object := &corev1.Node{Status: corev1.NodeStatus{Allocatable: of("4", "2")}}
	object.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("2")
	n := snapshot.NewNode(object, requesting(of("1500m", "1")))
	for name, tt := range map[string]struct {
		requests corev1.ResourceList
		ignored  corev1.ResourceName
		want     string
	}{
		"nothing":          {},
		"all that is left": {requests: of("2500m", "1")},
		"a bit more":       {requests: of("2501m", "1"), want: "Insufficient cpu"},
		"one GPU more":     {requests: of("1", "2"), want: "Insufficient example.com/gpu"},
		"ignored":          {requests: of("1", "2"), ignored: "example.com/gpu"},
		"not there":        {requests: corev1.ResourceList{"example.com/fpga": resource.MustParse("1")}, want: "Insufficient example.com/fpga"},
		"zero":             {requests: corev1.ResourceList{"example.com/fpga": resource.MustParse("0")}},
	} {
		if got := kubescheduler.For(requesting(tt.requests), tt.ignored).Lacks(n); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	one := requesting(of("1500m", "1"))
	two := snapshot.NewNode(object, one, requesting(of("2", "1")))
	for more, want := range map[string]string{"2": "", "2001m": "Insufficient cpu"} {
		filters := kubescheduler.For(requesting(of(more, "1")))
		rest := two.Without(func(pod *corev1.Pod) bool { return pod == one })
		if got, same := filters.LacksWithout(two, one), filters.Lacks(rest); got != want || same != want {
			t.Errorf("%s CPU without one of two pods: %q, and on a node without it: %q, want %q", more, got, same, want)
		}
		if got := filters.Lacks(two); got != "Too many pods" {
			t.Errorf("%s CPU with both pods: %q", more, got)
		}
	}
	for more, want := range map[string]string{"4": "", "4001m": "Insufficient cpu"} {
		if got := kubescheduler.For(requesting(of(more, "2"))).LacksWithout(two, two.Pods...); got != want {
			t.Errorf("%s CPU without both pods: %q, want %q", more, got, want)
		}
	}
	full := snapshot.NewNode(object, requesting(nil), requesting(nil))
	if got := kubescheduler.For(requesting(nil)).Lacks(full); got != "Too many pods" {
		t.Errorf("with as many pods as the node may have: %q", got)
	}
}

// kube-scheduler allocates devices for an extended resource that a DeviceClass serves, on nodes that do not report it.
func TestResourcesServedByDeviceClasses(t *testing.T) {
	const gpu, implicit, other = "example.com/gpu", "deviceclass.resource.kubernetes.io/gpu", "example.com/other"
	one, name := resource.MustParse("1"), gpu
	var none, classes snapshot.Builder
	for _, b := range []*snapshot.Builder{&none, &classes} {
		for name, reported := range map[string]corev1.ResourceList{"plugin": {gpu: one, "pods": one}, "driver": {"pods": one, implicit: {}}} {
			b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: reported}})
		}
	}
	classes.SetDeviceClass(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: &name}})
	for what, tt := range map[string]struct {
		view     *snapshot.View
		node     string
		resource corev1.ResourceName
		lacks    bool
		unsure   bool
	}{
		"served":                      {classes.View(), "driver", gpu, false, false},
		"served by its class":         {classes.View(), "driver", implicit, false, false},
		"reported by a device plugin": {classes.View(), "plugin", gpu, true, false},
		"not served":                  {classes.View(), "driver", other, true, false},
		"no class is known":           {none.View(), "driver", other, true, true},
		"no class is known, and a node reports it": {none.View(), "driver", gpu, true, false},
	} {
		requests := corev1.ResourceRequirements{Requests: corev1.ResourceList{tt.resource: resource.MustParse("2")}}
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: requests}}}}
		got := kubescheduler.For(pod).In(tt.view).Lacks(tt.view.Node(tt.node))
		if unsure := kubescheduler.Unsure(got, tt.view); (got != "") != tt.lacks || unsure != tt.unsure {
			t.Errorf("%s: %q, unsure: %t", what, got, unsure)
		}
	}
}

// A call may be for a sample if kube-scheduler looks for exactly so many nodes.
func TestSampled(t *testing.T) {
	for _, tt := range []struct {
		asked, all int
		want       bool
	}{
		{99, 99, false}, {99, 5000, false}, {100, 100, false}, {100, 101, true}, {100, 5000, true}, {420, 1000, true}, {421, 1000, false},
		{500, 5000, true}, {499, 5000, false}, {100, 1213, true}, {121, 1213, true}, {497, 1213, true}, {498, 1213, false}, {1213, 1213, false},
		{1, 0, false},
	} {
		if got := kubescheduler.Sampled(tt.asked, tt.all); got != tt.want {
			t.Errorf("%d of %d nodes: %v", tt.asked, tt.all, got)
		}
	}
	for all := 101; all < 6000; all += 53 {
		for percentage := range 100 {
			if asked := kubescheduler.NodesToFind(all, percentage); !kubescheduler.Sampled(asked, all) {
				t.Errorf("%d of %d nodes: not a sample, at %d %%", asked, all, percentage)
			}
		}
	}
}
