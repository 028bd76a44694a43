package equality

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// draw draws parts of a case. Values shrink to the first option, and to less.
type draw struct {
	*rapid.T
	start time.Time // when the case begins
	// unlearned omits policies that learn from the pods that have come: two processes may have observed different pods.
	unlearned bool
}

// begin begins a case at the current time, which is the only time that a plugin has.
func begin(t *rapid.T) draw { return draw{T: t, start: time.Now().UTC().Truncate(time.Second)} }

// pick draws one of the options; the first is the simplest.
func pick[T any](d draw, what string, options ...T) T {
	return options[rapid.IntRange(0, len(options)-1).Draw(d.T, what)]
}

// chance is true in this many of 100 cases.
func (d draw) chance(percent int, what string) bool {
	return rapid.IntRange(0, 99).Draw(d.T, what) >= 100-percent
}

func (d draw) between(low, high int, what string) int {
	return rapid.IntRange(low, high).Draw(d.T, what)
}

// label sets a key to one of the values; "" omits it.
func (d draw) label(in map[string]string, key string, values ...string) {
	if value := pick(d, key, values...); value != "" {
		in[key] = value
	}
}

const (
	gpuMemory   = "aliyun.com/gpu-mem"
	gpuCount    = "aliyun.com/gpu-count"
	fpga        = "example.com/fpga"
	seat        = "example.com/solver"
	clusterKey  = "example.com/cluster"
	priceKey    = "example.com/price"
	instanceKey = "node.kubernetes.io/instance-type"
	zoneKey     = "topology.kubernetes.io/zone"
	regionKey   = "topology.kubernetes.io/region"
	spotKey     = "karpenter.sh/capacity-type"
)

func images() []string {
	return []string{"registry.example.com/web:1", "registry.example.com/model:2", "busybox", "nginx@sha256:1f", "registry.example.com/model"}
}

// node draws a node with devices, labels, images and conditions.
func (d draw) node(i int) *corev1.Node {
	name := fmt.Sprintf("node-%02d", i)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1",
		Labels: map[string]string{"kubernetes.io/hostname": name}, Annotations: map[string]string{},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
	}}
	d.label(node.Labels, zoneKey, "", "a", "b")
	d.label(node.Labels, regionKey, "", "eu")
	d.label(node.Labels, instanceKey, "", "large", "small")
	d.label(node.Labels, "nvidia.com/gpu.product", "", "A100", "T4")
	d.label(node.Labels, "example.com/solver", "", "old", "new")
	d.label(node.Labels, clusterKey, "", "", "", "west", "east", "south")
	d.label(node.Labels, spotKey, "", "spot", "on-demand")
	d.label(node.Labels, "example.com/max-pods", "", "", "2", "0", "many")
	d.label(node.Labels, "team", "", "blue", "green")
	d.label(node.Labels, "rating", "", "10", "55", "high")
	d.label(node.Labels, priceKey, "", "0.1", "2.5", "free")
	d.label(node.Annotations, priceKey, "", "0.25", "3")
	d.label(node.Annotations, "example.com/degraded", "", "fan")
	d.label(node.Annotations, "example.com/gpu-sizes", "", "16,32", "8,8,16")
	d.label(node.Annotations, "example.com/fpgas", "", "fpga0,fpga1,fpga2", "fpga0=4,fpga1=2", "fpga0,fpga0")
	d.label(node.Annotations, "example.com/fpga-groups", "", "fpga0,fpga1;fpga2", "0,1;2,3")
	d.label(node.Annotations, "example.com/fpga-count", "", "2", "x")
	d.capacity(node)
	d.status(node)
	if d.chance(5, "unschedulable") {
		node.Spec.Unschedulable = true
	}
	if d.chance(10, "taint") {
		node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	}
	return node
}

func (d draw) capacity(node *corev1.Node) {
	all := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(pick(d, "cpu", "4", "16", "1500m")),
		corev1.ResourceMemory: resource.MustParse(pick(d, "memory", "8Gi", "64Gi", "1Gi")),
		corev1.ResourcePods:   resource.MustParse(pick(d, "pods", "110", "3")),
	}
	if n := pick(d, "GPUs", 0, 2, 4, 4, 2, 1); n > 0 {
		all[gpuCount] = *resource.NewQuantity(int64(n), resource.DecimalSI)
		all[gpuMemory] = *resource.NewQuantity(int64(n*pick(d, "GPU size", 16, 8, 32, 16)), resource.DecimalSI)
	}
	if n := pick(d, "FPGAs", 0, 4, 2, 4); n > 0 {
		all[fpga] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	node.Status.Capacity, node.Status.Allocatable = all, all.DeepCopy()
}

func (d draw) status(node *corev1.Node) {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(d.start)}
	node.Status.Conditions = []corev1.NodeCondition{ready}
	if status := pick(d, "KernelDeadlock", "", corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown); status != "" {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: "KernelDeadlock", Status: status})
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	node.Status.NodeInfo.KubeletVersion = pick(d, "kubelet", "v1.37.0", "v1.32.4")
	for i, image := range images() {
		if d.chance(30, "image") {
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{image}, SizeBytes: int64(i+1) * 120 << 20})
		}
	}
}

// pod draws a pod that is on no node.
func (d draw) pod(name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pick(d, "namespace", "default", "team-a"), Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1",
			CreationTimestamp: metav1.NewTime(d.start.Add(-time.Duration(d.between(0, 3600, "age")) * time.Second)),
			Labels:            map[string]string{}, Annotations: map[string]string{},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		// If no node fits, the extender alone says on which nodes preemption cannot help: for pods that preempt.
		Spec:   corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName, PreemptionPolicy: new(corev1.PreemptNever)},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	d.label(pod.Labels, "app", "", "web", "batch")
	d.label(pod.Labels, "team", "", "blue")
	d.label(pod.Annotations, "outboard.dev/licenses", "", "", "", "", "solver=1", "cad, solver=2", "cad", "solver=1", "solver=x")
	d.label(pod.Annotations, "outboard.dev/gpu-models", "", "", "A100", "A100,T4")
	d.label(pod.Annotations, "example.com/spot", "", "", "", "never", "allowed")
	d.label(pod.Annotations, "example.com/tolerate-degraded", "", "", "*", "deadlock")
	if size := pick(d, "text", 0, 0, 0, 0, 0, 0, 0, 0, 10<<10, 70<<10); size > 0 { // reduced in the cache, or too large to be placed
		pod.Annotations["example.com/text"] = strings.Repeat("x", size)
	}
	if priority := pick(d, "priority", int32(0), 10, 1000); priority > 0 {
		pod.Spec.Priority = &priority
	}
	if d.chance(20, "tolerates") {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	}
	for i := range pick(d, "containers", 1, 1, 1, 2) {
		c := d.container(i)
		c.Resources.Limits = corev1.ResourceList{}
		if i == 0 || d.chance(10, "devices too") {
			d.devices(pod, &c)
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	if d.chance(10, "init container") {
		c := d.container(9)
		if d.chance(20, "with a GPU") {
			c.Resources.Limits = corev1.ResourceList{gpuMemory: resource.MustParse("2")}
		}
		pod.Spec.InitContainers = []corev1.Container{c}
	}
	return pod
}

func (d draw) container(i int) corev1.Container {
	c := corev1.Container{Name: fmt.Sprintf("c%d", i), Image: pick(d, "image", images()...), Env: []corev1.EnvVar{{Name: "SECRET", Value: "x"}}}
	c.Resources.Requests = corev1.ResourceList{}
	if cpu := pick(d, "cpu", "", "100m", "2"); cpu != "" {
		c.Resources.Requests[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory := pick(d, "memory", "", "200Mi", "4Gi"); memory != "" {
		c.Resources.Requests[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return c
}

// devices adds a request for devices to the container.
func (d draw) devices(pod *corev1.Pod, c *corev1.Container) {
	request := func(name corev1.ResourceName, n int) {
		if n > 0 {
			c.Resources.Requests[name] = *resource.NewQuantity(int64(n), resource.DecimalSI)
			c.Resources.Limits[name] = c.Resources.Requests[name]
		}
	}
	if d.chance(50, "GPU") {
		switch pick(d, "GPU request", "memory", "memory", "several", "whole") {
		case "memory":
			request(gpuMemory, pick(d, "GPU memory", 2, 4, 8, 16, 3))
		case "several":
			request(gpuMemory, pick(d, "GPU memory", 4, 8, 16, 5))
			pod.Labels[gpuCount] = pick(d, "GPUs", "2", "2", "2", "0")
		case "whole":
			request(gpuCount, pick(d, "GPUs", 1, 2))
		}
	}
	request(fpga, pick(d, "FPGA request", 0, 0, 0, 1, 2, 3))
	request(seat, pick(d, "seat request", 0, 0, 0, 0, 0, 1))
}

// running draws a pod that is on the node.
func (d draw) running(name string, node *corev1.Node) *corev1.Pod {
	pod := d.pod(name)
	pod.Spec.NodeName = node.Name
	pod.Status.Phase = pick(d, "phase", corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed)
	bound := metav1.NewTime(d.start.Add(-time.Duration(d.between(0, 300, "bound")) * time.Second))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: bound}}
	if d.chance(10, "terminating") {
		pod.DeletionTimestamp = &metav1.Time{Time: d.start}
	}
	if memory := pod.Spec.Containers[0].Resources.Limits[gpuMemory]; !memory.IsZero() && d.chance(90, "has GPUs") {
		pod.Annotations["ALIYUN_COM_GPU_MEM_IDX"] = pick(d, "GPU", "0", "1", "0,1", "x")
		pod.Annotations["ALIYUN_COM_GPU_MEM_DEV"] = "16"
		pod.Annotations["ALIYUN_COM_GPU_MEM_POD"] = strconv.FormatInt(memory.Value(), 10)
		pod.Annotations["ALIYUN_COM_GPU_MEM_ASSIGNED"] = pick(d, "assigned", "true", "false")
		pod.Annotations["ALIYUN_COM_GPU_MEM_ASSUME_TIME"] = "1"
	}
	if units := pod.Spec.Containers[0].Resources.Limits[fpga]; !units.IsZero() {
		d.label(pod.Annotations, "outboard.dev/example.com.fpga", "", "fpga0", "0", "fpga1,fpga2", "0,1")
	}
	return pod
}

// nominated draws a pod that is nominated to the node after evictions.
func (d draw) nominated(name, node string) *corev1.Pod {
	pod := d.pod(name)
	pod.Status.NominatedNodeName = node
	return pod
}

// subset draws some of the nodes, in any order, at least one.
func (d draw) subset(nodes []*corev1.Node) []*corev1.Node {
	shuffled := slices.Clone(nodes)
	if !d.chance(50, "some of the nodes") {
		return shuffled
	}
	shuffled = rapid.Permutation(shuffled).Draw(d.T, "order")
	return shuffled[:d.between(1, len(shuffled), "asked")]
}
