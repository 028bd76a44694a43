package yardstick

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// draw draws parts of a case. Values shrink to the first option.
type draw struct{ *rapid.T }

func pick[T any](d draw, what string, options ...T) T {
	return options[rapid.IntRange(0, len(options)-1).Draw(d.T, what)]
}

// chance is true in this many of 100 cases.
func (d draw) chance(percent int, what string) bool {
	return rapid.IntRange(0, 99).Draw(d.T, what) >= 100-percent
}

const (
	gpu     = corev1.ResourceName("example.com/gpu")
	license = corev1.ResourceName("example.com/license")
	zone    = "topology.kubernetes.io/zone"
	disks   = "example.com/disks"
)

// list draws amounts of the resources; "" omits one.
func (d draw) list(amounts map[corev1.ResourceName][]string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods, gpu, license} {
		if options := amounts[name]; len(options) > 0 {
			if amount := pick(d, string(name), options...); amount != "" {
				list[name] = resource.MustParse(amount)
			}
		}
	}
	return list
}

func (d draw) node(i int) *corev1.Node {
	name := fmt.Sprintf("node-%02d", i)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"kubernetes.io/hostname": name}}}
	if value := pick(d, zone, "a", "b", ""); value != "" {
		node.Labels[zone] = value
	}
	if value := pick(d, disks, "", "1", "4", "many"); value != "" {
		node.Labels[disks] = value
	}
	node.Spec.Unschedulable = d.chance(10, "unschedulable")
	for range pick(d, "taints", 0, 0, 0, 0, 1, 2) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{
			Key: pick(d, "key", "dedicated", "broken", corev1.TaintNodeUnschedulable), Value: pick(d, "value", "", "gpu", "3"),
			Effect: pick(d, "effect", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule),
		})
	}
	node.Status.Allocatable = d.list(map[corev1.ResourceName][]string{
		corev1.ResourceCPU: {"8", "16", "16", "4", "1500m", "0", ""}, corev1.ResourceMemory: {"16Gi", "32Gi", "64Gi", "1Gi"}, corev1.ResourceEphemeralStorage: {"10Gi", "40Gi", "40Gi", ""},
		corev1.ResourcePods: {"110", "110", "110", "110", "110", "110", "2", "0", ""}, gpu: {"8", "8", "", "1"}, license: {"4", "4", "", "2"},
	})
	node.Status.Capacity = node.Status.Allocatable.DeepCopy()
	for i, image := range images() {
		if d.chance(40, "image") {
			size := int64(i+1) * pick(d, "MiB", int64(10), 90, 700) << 20
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{image}, SizeBytes: size})
		}
	}
	return node
}

func images() []string {
	return []string{"registry.example.com/web:1", "busybox:latest", "registry.example.com:5000/model:latest", "nginx@sha256:1f"}
}

func (d draw) requests() corev1.ResourceList {
	return d.list(map[corev1.ResourceName][]string{
		corev1.ResourceCPU: {"", "100m", "1", "2", "0"}, corev1.ResourceMemory: {"", "200Mi", "3Gi"}, corev1.ResourceEphemeralStorage: {"", "", "3Gi"},
		gpu: {"", "", "1", "2", "0"}, license: {"", "", "", "1"},
	})
}

// resourcesOnly draws a pod of which only the requests have an effect.
func (d draw) resourcesOnly(name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "1"},
		Spec:       corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	for i := range pick(d, "containers", 1, 2) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("c%d", i), Image: pick(d, "image", "registry.example.com/web:1", "busybox", "registry.example.com:5000/model", "nginx@sha256:1f", "unknown"),
			Resources: corev1.ResourceRequirements{Requests: d.requests()},
		})
	}
	for i := range pick(d, "init containers", 0, 0, 1, 2) {
		c := corev1.Container{Name: fmt.Sprintf("i%d", i), Image: "busybox", Resources: corev1.ResourceRequirements{Requests: d.requests()}}
		if d.chance(50, "sidecar") {
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	if d.chance(20, "overhead") {
		pod.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}
	}
	if d.chance(20, "pod-level resources") {
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: d.list(map[corev1.ResourceName][]string{
			corev1.ResourceCPU: {"", "1", "5"}, corev1.ResourceMemory: {"", "4Gi"},
		})}
	}
	return pod
}

// running draws a pod on the node, which may be resized.
func (d draw) running(name, node string) *corev1.Pod {
	pod := d.resourcesOnly(name)
	pod.Spec.NodeName, pod.Status.Phase = node, corev1.PodRunning
	if !d.chance(30, "resized") {
		return pod
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		status := corev1.ContainerStatus{Name: c.Name, AllocatedResources: d.requests()}
		if d.chance(50, "actual") {
			status.Resources = &corev1.ResourceRequirements{Requests: d.requests()}
		}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status)
	}
	if d.chance(30, "infeasible") {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}}
	}
	return pod
}

// pod draws a pod that may also restrict its nodes.
func (d draw) pod(name string) *corev1.Pod {
	pod := d.resourcesOnly(name)
	for range pick(d, "tolerations", 0, 1, 2) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: pick(d, "key", "dedicated", "broken", corev1.TaintNodeUnschedulable, ""), Operator: pick(d, "operator", "", corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt),
			Value: pick(d, "value", "", "gpu", "2"), Effect: pick(d, "effect", "", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute),
		})
	}
	if d.chance(30, "selector") {
		pod.Spec.NodeSelector = map[string]string{zone: pick(d, "zone", "a", "c")}
	}
	if d.chance(40, "affinity") {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: d.nodeSelector()}}
	}
	if d.chance(5, "node name") {
		pod.Spec.NodeName = pick(d, "name", "node-00", "node-77")
	}
	return pod
}

func (d draw) nodeSelector() *corev1.NodeSelector {
	s := &corev1.NodeSelector{}
	for range pick(d, "terms", 1, 2, 0) {
		var term corev1.NodeSelectorTerm
		for range pick(d, "expressions", 1, 2, 0) {
			term.MatchExpressions = append(term.MatchExpressions, d.requirement())
		}
		if d.chance(20, "fields") {
			term.MatchFields = []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: pick(d, "field operator", corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn), Values: []string{pick(d, "name", "node-00", "node-01")},
			}}
		}
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, term)
	}
	return s
}

func (d draw) requirement() corev1.NodeSelectorRequirement {
	r := corev1.NodeSelectorRequirement{Key: pick(d, "label", zone, disks), Operator: pick(d, "selector operator",
		corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt)}
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		r.Values = pick(d, "values", []string{"a"}, []string{"a", "b"}, []string{"1", "c"})
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		r.Values = []string{pick(d, "bound", "2", "0", "x")}
	}
	return r
}

// cluster draws nodes with pods.
func (d draw) cluster() (nodes []*corev1.Node, pods []*corev1.Pod) {
	for i := range pick(d, "nodes", 1, 2, 4, 8) {
		node := d.node(i)
		nodes = append(nodes, node)
		for j := range pick(d, "pods", 0, 1, 2, 3) {
			pods = append(pods, d.running(fmt.Sprintf("running-%02d-%d", i, j), node.Name))
		}
	}
	return nodes, pods
}
