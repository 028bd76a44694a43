package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/snapshot"
)

// nodeOf is the node of the trace while it is empty.
func nodeOf(object *corev1.Node) *placement.Node {
	c := object.Status.Capacity
	n := &placement.Node{Model: object.Labels[modelLabel], CPU: c.Cpu().MilliValue(), Memory: c.Memory().Value()}
	n.CPUCapacity, n.MemoryCapacity = n.CPU, n.Memory
	count := c[gpuCount]
	for range count.Value() {
		n.GPUs = append(n.GPUs, placement.GPU{Free: placement.Whole, Size: placement.Whole})
	}
	return n
}

// shapeOf is the request of the trace's pod.
func shapeOf(pod *corev1.Pod) placement.Shape {
	requests := pod.Spec.Containers[0].Resources.Requests
	s := placement.Shape{CPU: requests.Cpu().MilliValue(), Memory: requests.Memory().Value()}
	units := gpuUnits(pod)
	if units == 0 {
		return s
	}
	s.GPUs = 1
	if count, err := strconv.Atoi(pod.Labels[gpuCount]); err == nil {
		s.GPUs = count
	}
	s.Share = units / int64(s.GPUs)
	if models := pod.Annotations[modelAnnotation]; models != "" {
		s.Models = placement.NewModels(strings.Split(models, ",")...)
	}
	return s
}

// asked is a strategy of GPUMemory in an engine that answers with the best node, and
// is asked about some nodes, as kube-scheduler asks.
type asked struct {
	percentage int // percentageOfNodesToScore
	from       int // where kube-scheduler begins to look
	held       *held
	engine     *engine.Engine
	builder    snapshot.Builder
	view       *snapshot.View
	nodes      []*snapshot.Node
	places     map[string]int // of the nodes, by name
	result     engine.Result
}

func newAsked(h *held, c contender, percentage int) (*asked, error) {
	e, err := extender(c)
	if err != nil {
		return nil, err
	}
	a := &asked{percentage: percentage, held: h, engine: e.Engine, places: map[string]int{}}
	for i, n := range h.objects {
		a.places[n.Name] = i
		a.builder.SetNode(n)
	}
	for i, j := range h.jobs { // what is learnt from
		a.builder.SetPod(instance(j.Pod, -i))
		a.builder.DeletePod(instance(j.Pod, -i).UID)
	}
	for _, p := range h.running {
		a.builder.SetPod(a.bound(p))
	}
	return a, nil
}

// instance is a pod like the given one.
func instance(like *corev1.Pod, id int) *corev1.Pod {
	pod := *like // shallow: nothing below is written to
	pod.Name = fmt.Sprintf("%s-%d", like.Name, id)
	pod.UID = types.UID(pod.Name)
	return &pod
}

// bound is the pod as it is on its node.
func (a *asked) bound(p placed) *corev1.Pod {
	pod := instance(a.held.jobs[p.job].Pod, p.id)
	pod.Spec.NodeName, pod.Status.Phase = a.held.objects[p.node].Name, corev1.PodRunning
	var shares []string
	for _, gpu := range p.gpus {
		shares = append(shares, fmt.Sprintf("%q:%d", strconv.Itoa(gpu), a.held.shapes[p.job].Share))
	}
	pod.Annotations = map[string]string{"scheduler.framework.gpushare.allocation": `{"0":{` + strings.Join(shares, ",") + `}}`}
	return pod
}

func (a *asked) prepare() error {
	a.view = a.builder.View()
	a.nodes = a.nodes[:0]
	for range kubescheduler.NodesToFind(len(a.held.objects), a.percentage) {
		a.nodes = append(a.nodes, a.view.Node(a.held.objects[a.from].Name))
		a.from = (a.from + 1) % len(a.held.objects)
	}
	return a.engine.Precompute(a.view)
}

func (a *asked) best(job int) (node, gpu int, ok bool) {
	pod := instance(a.held.jobs[job].Pod, 0)
	pod.UID = "" // so that nothing is remembered of it
	err := a.engine.Filter(context.Background(), engine.Request{Pod: pod, View: a.view, Nodes: a.nodes}, &a.result)
	if err != nil || len(a.result.Kept) == 0 {
		return 0, 0, false
	}
	return a.places[a.nodes[a.result.Kept[0]].Name], placement.FirstFree, true
}

func (a *asked) placed(p placed)  { a.builder.SetPod(a.bound(p)) }
func (a *asked) removed(p placed) { a.builder.DeletePod(instance(a.held.jobs[p.job].Pod, p.id).UID) }
