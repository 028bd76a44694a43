package snapshot_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"pgregory.net/rapid"

	"outboard.dev/outboard/snapshot"
)

func cpuAndMemory(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func both(list corev1.ResourceList) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
}

// reported is the status of a container with these resources, as the kubelet reports it.
func reported(name string, has corev1.ResourceList) corev1.ContainerStatus {
	resources := both(has)
	return corev1.ContainerStatus{
		Name: name, Image: "image:1", ContainerID: "containerd://1", Ready: true, AllocatedResources: has, Resources: &resources,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Message: "hunter2"}},
	}
}

// resizing is a pod on a node that requests one amount and has another.
func resizing(asks, has corev1.ResourceList) *corev1.Pod {
	p := pod("p", "a")
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: both(asks)}, {Name: "idle"}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{reported("c", has), reported("idle", nil)}
	p.Status.AllocatedResources = has.DeepCopy()
	sum := both(has)
	p.Status.Resources = &sum
	return p
}

// TestPodRequestsOfResizedPods: a pod on a node counts as in kube-scheduler, also after it is trimmed; trimming keeps only the
// amounts for that.
func TestPodRequestsOfResizedPods(t *testing.T) {
	pending := func(p *corev1.Pod, reason string) *corev1.Pod {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason}}
		return p
	}
	small, large := cpuAndMemory("1", "1Gi"), cpuAndMemory("4", "8Gi")
	ofPod := resizing(nil, nil)
	ofPod.Spec.Resources, ofPod.Status.AllocatedResources = &corev1.ResourceRequirements{Requests: small}, large
	unbound := resizing(small, large)
	unbound.Spec.NodeName = ""
	for _, tc := range []struct {
		what string
		pod  *corev1.Pod
		want corev1.ResourceList
		kept bool
	}{
		{"not resized", resizing(small, small), small, false},
		{"grows", resizing(large, small), large, false},
		{"shrinks", resizing(small, large), large, true},
		{"grows and is deferred", pending(resizing(large, small), corev1.PodReasonDeferred), large, false},
		{"grows and is infeasible", pending(resizing(large, small), corev1.PodReasonInfeasible), small, true},
		{"shrinks as a whole", ofPod, large, true},
		{"on no node", unbound, small, false},
	} {
		whole := snapshot.PodRequests(tc.pod)
		snapshot.TrimPod(tc.pod)
		trimmed := snapshot.PodRequests(tc.pod)
		if !equality.Semantic.DeepEqual(whole, tc.want) || !equality.Semantic.DeepEqual(trimmed, tc.want) {
			t.Errorf("%s: counts with %v, and trimmed with %v, want %v", tc.what, whole, trimmed, tc.want)
		}
		s := tc.pod.Status
		if kept := len(s.ContainerStatuses) > 0 || s.AllocatedResources != nil || s.Resources != nil; kept != tc.kept {
			t.Errorf("%s: the trimmed status has resources %v", tc.what, s)
		}
		if text := fmt.Sprint(s); strings.Contains(text, "hunter2") || strings.Contains(text, "containerd") {
			t.Errorf("%s: the trimmed status has more than amounts: %s", tc.what, text)
		}
	}
}

// drawResources draws a list, or nil, of few different amounts, so that equal amounts are frequent.
func drawResources(t *rapid.T, name string) corev1.ResourceList {
	if rapid.IntRange(0, 3).Draw(t, name+" is nil") == 0 {
		return nil
	}
	list := corev1.ResourceList{}
	for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "example.com/fpga", "hugepages-2Mi"} {
		if n := rapid.IntRange(-1, 3).Draw(t, name+" "+string(r)); n >= 0 {
			list[r] = *resource.NewQuantity(int64(n), resource.DecimalSI)
		}
	}
	return list
}

func drawRequirements(t *rapid.T, name string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: drawResources(t, name+" requests"), Limits: drawResources(t, name+" limits")}
}

func drawStatus(t *rapid.T, c *corev1.Container) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: c.Name}
	switch rapid.IntRange(0, 2).Draw(t, c.Name+" reports") {
	case 0: // the requested amount
		s.AllocatedResources, s.Resources = c.Resources.Requests, c.Resources.DeepCopy()
	case 1:
		s.AllocatedResources = drawResources(t, c.Name+" allocated")
		if rapid.Bool().Draw(t, c.Name+" has resources") {
			r := drawRequirements(t, c.Name+" has")
			s.Resources = &r
		}
	}
	return s
}

// drawPod draws a pod on a node, which may be resized.
func drawPod(t *rapid.T) *corev1.Pod {
	p := pod("p", rapid.SampledFrom([]string{"a", "a", "a", ""}).Draw(t, "node"))
	always := corev1.ContainerRestartPolicyAlways
	for i := range rapid.IntRange(0, 3).Draw(t, "containers") {
		c := corev1.Container{Name: fmt.Sprint("c", i)}
		c.Resources = drawRequirements(t, c.Name)
		p.Spec.Containers = append(p.Spec.Containers, c)
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, drawStatus(t, &c))
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "init containers") {
		c := corev1.Container{Name: fmt.Sprint("i", i)}
		if rapid.Bool().Draw(t, c.Name+" is a sidecar") {
			c.RestartPolicy = &always
		}
		c.Resources = drawRequirements(t, c.Name)
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, drawStatus(t, &c))
	}
	if rapid.IntRange(0, 3).Draw(t, "overhead") == 0 {
		p.Spec.Overhead = drawResources(t, "overhead")
	}
	if rapid.IntRange(0, 3).Draw(t, "of the pod") == 0 {
		r := drawRequirements(t, "pod")
		p.Spec.Resources = &r
	}
	if rapid.Bool().Draw(t, "reported of the pod") {
		r := drawRequirements(t, "pod has")
		p.Status.Resources, p.Status.AllocatedResources = &r, drawResources(t, "pod allocated")
	}
	if reason := rapid.SampledFrom([]string{"", "", "", corev1.PodReasonInfeasible, corev1.PodReasonDeferred}).Draw(t, "resize"); reason != "" {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: reason}}
	}
	return p
}

// TestPodRequestsAreKubeSchedulers: any pod, trimmed or not, counts as in kube-scheduler's NodeInfo if it is on a node, and as
// in NodeResourcesFit if it is not.
func TestPodRequestsAreKubeSchedulers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPod(t)
		bound := resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}
		want := resourcehelper.PodRequests(p, bound)
		if p.Spec.NodeName == "" {
			want = resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
		}
		before := p.DeepCopy()
		got := snapshot.PodRequests(p)
		if diff := cmp.Diff(before, p); diff != "" {
			t.Fatalf("counting changed the pod (-before +after):\n%s", diff)
		}
		snapshot.TrimPod(p)
		trimmed := snapshot.PodRequests(p)
		for _, list := range []corev1.ResourceList{got, trimmed, want} {
			maps.DeleteFunc(list, func(_ corev1.ResourceName, q resource.Quantity) bool { return q.IsZero() }) // counts like a missing resource
		}
		if !equality.Semantic.DeepEqual(got, want) || !equality.Semantic.DeepEqual(trimmed, want) {
			t.Fatalf("counts with %v, and trimmed with %v, want %v", got, trimmed, want)
		}
	})
}

// A container names a resource if it has a request or a limit of it, and a limit is also a request if there is none.
func TestResourcesOfContainers(t *testing.T) {
	list := func(amounts ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for i := 0; i < len(amounts); i += 2 {
			l[corev1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
		}
		return l
	}
	for name, tt := range map[string]struct {
		resources corev1.ResourceRequirements
		requests  corev1.ResourceList // with defaults
	}{
		"a request":               {corev1.ResourceRequirements{Requests: list("x", "1")}, list("x", "1")},
		"a limit":                 {corev1.ResourceRequirements{Limits: list("x", "2")}, list("x", "2")},
		"both":                    {corev1.ResourceRequirements{Requests: list("x", "1"), Limits: list("x", "2")}, list("x", "1")},
		"a limit and another one": {corev1.ResourceRequirements{Requests: list("y", "1"), Limits: list("x", "2")}, list("x", "2", "y", "1")},
	} {
		containers := []corev1.Container{{Resources: tt.resources}}
		for _, spec := range []corev1.PodSpec{{Containers: containers}, {InitContainers: containers}} {
			pod := (&corev1.Pod{Spec: spec}).DeepCopy()
			if !snapshot.NamesResource(pod, "x") || snapshot.NamesResource(pod, "z") {
				t.Errorf("%s: the pod names x: %t, z: %t", name, snapshot.NamesResource(pod, "x"), snapshot.NamesResource(pod, "z"))
			}
			snapshot.DefaultRequests(pod)
			for _, c := range append(pod.Spec.Containers, pod.Spec.InitContainers...) {
				if !equality.Semantic.DeepEqual(c.Resources.Requests, tt.requests) {
					t.Errorf("%s: the requests are %v, want %v", name, c.Resources.Requests, tt.requests)
				}
			}
		}
	}
}
