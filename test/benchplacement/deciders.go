package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/placement"
	"outboard.dev/outboard/simulate"
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

// shapeOf is what the pod of the trace asks for.
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

// indexed is least waste by the arithmetic alone, with an index. It learns from the pods
// that come; what is learnt is worked out beside the decisions.
type indexed struct {
	held    *held
	kinds   []placement.Kind
	orders  []placement.Cost
	learner *placement.Learner
	came    int
	lesson  int
	next    chan *placement.Waste // nil while nothing is being worked out
	index   *placement.Index
	supply  *placement.Supply
	prices  *placement.Prices // nil when the supply has changed
}

func newIndexed(h *held) *indexed {
	x := &indexed{held: h, learner: placement.NewLearner(len(h.nodes))}
	for i, n := range h.nodes {
		x.kinds, x.orders = append(x.kinds, n.Kind()), append(x.orders, placement.Order(h.objects[i].Name))
	}
	x.index = placement.NewIndex(h.nodes, nil)
	x.use(placement.NewWaste(x.learner.Mix(), x.kinds))
	return x
}

// use decides by what was learnt from now on.
func (x *indexed) use(w *placement.Waste) {
	x.index.Rerate(func(place int, n *placement.Node, s placement.Shape) placement.Offers {
		return w.Rate(n, s).Plus(x.orders[place])
	})
	x.supply, x.prices = placement.NewSupply(w), nil
	for _, n := range x.held.nodes {
		x.supply.Add(n)
	}
}

func (x *indexed) prepare() error { return nil }

func (x *indexed) best(job int) (node, gpu int, ok bool) {
	s := x.held.shapes[job]
	x.learner.Arrive(s)
	x.came++
	select {
	case w := <-x.next:
		x.next = nil
		x.use(w)
	default:
	}
	if due := placement.NextLesson(x.came, len(x.held.nodes)); due != x.lesson && x.next == nil {
		mix, next := x.learner.Mix(), make(chan *placement.Waste, 1)
		x.lesson, x.next = due, next
		go func() { next <- placement.NewWaste(mix, x.kinds) }()
	}
	if x.prices == nil {
		x.prices = x.supply.Prices()
	}
	return x.index.Best(s, func(t placement.Terms) placement.Cost { return x.prices.Of(s, t) })
}

func (x *indexed) changing(node int) { x.supply.Remove(x.held.nodes[node]) }

func (x *indexed) changed(node int) {
	x.supply.Add(x.held.nodes[node])
	x.index.Changed(node)
	x.prices = nil
}

func (x *indexed) placed(p placed) { x.changed(p.node) }

func (x *indexed) removed(p placed) {
	x.learner.Depart(x.held.shapes[p.job])
	x.changed(p.node)
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
	for range simulate.NodesToFind(len(a.held.objects), a.percentage) {
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

func (a *asked) changing(int)     {}
func (a *asked) placed(p placed)  { a.builder.SetPod(a.bound(p)) }
func (a *asked) removed(p placed) { a.builder.DeletePod(instance(a.held.jobs[p.job].Pod, p.id).UID) }
