package main

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/simulate"
	"outboard.dev/outboard/test/openb"
)

// trace is a cluster, and the pods that arrive.
type trace struct {
	nodes []*corev1.Node
	mix   []*corev1.Pod
	jobs  []openb.Job // the pods of mix, with their lifetimes; nil where pods do not end
	seed  uint64      // of the order in which pods come
	until float64     // the sum of their requests, relative to the capacity
	// percentage is kube-scheduler's percentageOfNodesToScore; 0: its default.
	percentage int
	devices    *simulate.Devices // nil unless pods have ResourceClaims
}

const gpuMemory = corev1.ResourceName("aliyun.com/gpu-mem")

// world is what is simulated.
func (t *trace) world() *simulate.World {
	w := &simulate.World{Nodes: t.nodes, Resource: gpuMemory}
	if t.devices != nil {
		w.Devices = *t.devices
	}
	return w
}

// order returns the pods in the order of their creation.
func (t *trace) order() ([]*corev1.Pod, error) { return t.world().Order(t.mix, t.seed, t.until) }

// capacity is how much GPU memory there is on nodes.
func capacity(nodes []corev1.Node) int64 {
	sum := int64(0)
	for i := range nodes {
		memory := nodes[i].Status.Allocatable[gpuMemory]
		sum += memory.Value()
	}
	return sum
}

// demand is how much GPU memory the pod requests.
func demand(pod *corev1.Pod) int64 {
	sum := int64(0)
	for i := range pod.Spec.Containers {
		memory := pod.Spec.Containers[i].Resources.Requests[gpuMemory]
		sum += memory.Value()
	}
	return sum
}

// newNode is the node as an API server takes it.
func newNode(like *corev1.Node) *corev1.Node {
	n := *like // shallow: it is not written to
	n.UID, n.ResourceVersion, n.CreationTimestamp = "", "", metav1.Time{}
	return &n
}

// newPod is the pod as an API server takes it.
func newPod(like *corev1.Pod) *corev1.Pod {
	p := *like // shallow: what follows is replaced, not written to
	p.UID, p.ResourceVersion, p.CreationTimestamp = "", "", metav1.Time{}
	p.Spec.Containers = slices.Clone(like.Spec.Containers)
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].Image = "pause"
	}
	return &p
}
