package policytest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

// nonsense are invalid values for labels, annotations and image names.
var nonsense = []string{"", "-1", "0", "nonsense", "NaN", "9223372036854775808", `{"a":`, "::@@\xff"}

// cluster is the input from which a View is built for every rule anew, so that no Fact of its nodes
// is computed yet.
type cluster struct {
	name      string
	nodes     []*corev1.Node
	pods      []*corev1.Pod
	signals   []*snapshot.Signal
	strangers bool // the nodes are only in the request, and the View is empty
}

type world struct {
	view *snapshot.View
	// nodes are the nodes to call the policy for: those of the View in order of name, then others.
	nodes []*snapshot.Node
	known int // how many of nodes are in the View
}

// build returns the cluster as policies see it, with trimmed objects.
func (c *cluster) build(extend func(*snapshot.Builder)) *world {
	nodes, pods := copies(c.nodes), copies(c.pods)
	unknown := []*corev1.Node{{}, {ObjectMeta: metav1.ObjectMeta{Name: "policytest-unknown"}}}
	for _, node := range nodes {
		snapshot.TrimNode(node)
	}
	for _, pod := range pods {
		snapshot.TrimPod(pod)
	}
	w := new(world)
	var b snapshot.Builder
	for _, signal := range c.signals {
		b.SetSignal(signal)
	}
	if c.strangers {
		for _, node := range nodes {
			on := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.Spec.NodeName != node.Name })
			w.nodes = append(w.nodes, snapshot.NewNode(node, on...))
		}
	} else {
		for _, node := range nodes {
			b.SetNode(node)
		}
		for _, pod := range pods {
			b.SetPod(pod)
		}
		if extend != nil {
			extend(&b)
		}
	}
	w.view = b.View()
	w.nodes = slices.AppendSeq(w.nodes, w.view.All())
	w.known = w.view.Len()
	for _, node := range unknown {
		w.nodes = append(w.nodes, snapshot.NewNode(node))
	}
	return w
}

// givenNodes is the name of the cluster with the given nodes, pods and signals.
const givenNodes = "the given nodes"

// allCases returns the given pods in every cluster, and the hostile pods in the given cluster and
// in the barest.
func allCases(o Options) []*testCase {
	given := &cluster{name: givenNodes, nodes: o.Nodes, pods: o.Assigned, signals: o.Signals}
	bare := given.changed("nodes with nothing but a name", func(n *corev1.Node) {
		*n = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	}, func(p *corev1.Pod) {
		*p = corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
			Spec:       corev1.PodSpec{NodeName: p.Spec.NodeName},
		}
	})
	clusters := append(hostileClusters(given), bare, given)
	clusters = append(clusters, hostileSignals(given)...)
	var cases []*testCase
	add := func(pod *corev1.Pod, what string, clusters ...*cluster) {
		pod = pod.DeepCopy()
		snapshot.TrimPod(pod)
		for _, c := range clusters {
			cases = append(cases, &testCase{
				name:      fmt.Sprintf("pod %q%s, %s", podName(pod), what, c.name),
				pod:       pod,
				unchanged: what == "",
				cluster:   c,
			})
		}
	}
	for _, pod := range o.Pods {
		add(pod, "", clusters...)
		changePod(func(what string, change func(*corev1.Pod)) {
			changed := pod.DeepCopy()
			change(changed)
			add(changed, " "+what, given, bare)
		})
	}
	add(&corev1.Pod{}, " (empty)", given, bare)
	return cases
}

// changePod calls add with each change that makes a pod hostile.
func changePod(add func(what string, change func(*corev1.Pod))) {
	add("without labels and annotations", func(p *corev1.Pod) { p.Labels, p.Annotations = nil, nil })
	add("without containers", func(p *corev1.Pod) { p.Spec.Containers, p.Spec.InitContainers = nil, nil })
	add("without a spec", func(p *corev1.Pod) { p.Spec = corev1.PodSpec{} })
	add("without a namespace, name and UID", func(p *corev1.Pod) { p.Namespace, p.Name, p.UID = "", "", "" })
	add("being deleted", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} })
	add("without requests", func(p *corev1.Pod) {
		eachContainer(p, func(c *corev1.Container) { c.Resources = corev1.ResourceRequirements{} })
	})
	for _, amount := range []int64{0, -1, math.MaxInt64} {
		add(fmt.Sprintf("requesting %d of everything", amount), func(p *corev1.Pod) {
			eachContainer(p, func(c *corev1.Container) {
				setAll(c.Resources.Requests, amount)
				setAll(c.Resources.Limits, amount)
			})
		})
	}
	add("with other numbers in labels and annotations", func(p *corev1.Pod) {
		increment(p.Labels)
		increment(p.Annotations)
	})
	for _, value := range nonsense {
		add(fmt.Sprintf("with %q for every label, annotation and image", value), func(p *corev1.Pod) {
			setValues(p.Labels, value)
			setValues(p.Annotations, value)
			eachContainer(p, func(c *corev1.Container) { c.Image = value })
		})
	}
}

func hostileClusters(given *cluster) []*cluster {
	clusters := []*cluster{
		{name: "an empty View", signals: given.signals},
		{name: "an empty View and the given nodes in the request", nodes: given.nodes, pods: given.pods, signals: given.signals, strangers: true},
	}
	for _, amount := range []int64{0, -1, math.MaxInt64} {
		clusters = append(clusters, given.changed(fmt.Sprintf("nodes with %d of everything", amount), func(n *corev1.Node) {
			setAll(n.Status.Allocatable, amount)
			setAll(n.Status.Capacity, amount)
			for i := range n.Status.Images {
				n.Status.Images[i].SizeBytes = amount
			}
		}, func(*corev1.Pod) {}))
	}
	for _, value := range nonsense {
		clusters = append(clusters, given.changed(fmt.Sprintf("nodes and their pods with %q for every label and annotation", value), func(n *corev1.Node) {
			setValues(n.Labels, value)
			setValues(n.Annotations, value)
			for i := range n.Status.Images {
				for j := range n.Status.Images[i].Names {
					n.Status.Images[i].Names[j] = value
				}
			}
		}, func(p *corev1.Pod) {
			setValues(p.Labels, value)
			setValues(p.Annotations, value)
		}))
	}
	return clusters
}

// hostileSignals returns clusters with the given nodes and with signals that are missing, stale or
// invalid.
func hostileSignals(given *cluster) []*cluster {
	if len(given.signals) == 0 {
		return nil
	}
	with := func(name string, change func(*snapshot.Value)) *cluster {
		return given.saying(name, func(values map[string]snapshot.Value) {
			for key, value := range values {
				change(&value)
				values[key] = value
			}
		})
	}
	clusters := []*cluster{
		{name: "the given nodes without signals", nodes: given.nodes, pods: given.pods},
		with("the given nodes with stale signals", func(v *snapshot.Value) { v.Stale = true }),
	}
	for _, number := range []float64{0, -1, math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64} {
		clusters = append(clusters, with(fmt.Sprintf("the given nodes with the signal %g", number), func(v *snapshot.Value) { v.Number = number }))
	}
	return clusters
}

// saying returns a copy of the cluster with changed values of each signal.
func (c *cluster) saying(name string, change func(map[string]snapshot.Value)) *cluster {
	next := *c
	next.name, next.signals = name, nil
	for _, signal := range c.signals {
		values := maps.Collect(signal.All())
		change(values)
		next.signals = append(next.signals, snapshot.NewSignal(signal.Name(), values))
	}
	return &next
}

func (c *cluster) changed(name string, node func(*corev1.Node), pod func(*corev1.Pod)) *cluster {
	next := &cluster{name: name, nodes: copies(c.nodes), pods: copies(c.pods), signals: c.signals}
	for _, n := range next.nodes {
		node(n)
	}
	for _, p := range next.pods {
		pod(p)
	}
	return next
}

func eachContainer(pod *corev1.Pod, f func(*corev1.Container)) {
	for i := range pod.Spec.InitContainers {
		f(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		f(&pod.Spec.Containers[i])
	}
}

func setAll(list corev1.ResourceList, amount int64) {
	for name := range list {
		list[name] = *resource.NewQuantity(amount, resource.DecimalSI)
	}
}

func setValues(m map[string]string, value string) {
	for key := range m {
		m[key] = value
	}
}

func increment(m map[string]string) {
	for key, value := range m {
		if n, err := strconv.ParseInt(value, 10, 32); err == nil {
			m[key] = strconv.FormatInt(n+1, 10)
		}
	}
}

func copies[T interface{ DeepCopy() T }](objects []T) []T {
	list := slices.Clone(objects)
	for i, object := range list {
		list[i] = object.DeepCopy()
	}
	return list
}

func podName(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }
