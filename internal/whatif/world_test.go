package whatif_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
	"outboard.dev/outboard/snapshot"
)

// several is a profile whose policies need not accept less of everything that they accept: the rule odd rejects a request for CPU
// between two that it accepts, and GPUMemory shares that are not equal.
const several = `apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- policies:
  - {type: GPUMemory, weight: 3, config: {multiGPU: true}}
  - {type: Devices, weight: 2, config: {resource: example.com/fpga}}
  - {type: Licenses, config: {features: [{name: cad, seats: 4}, {name: sim, seats: 2, nodeLabel: {key: zone}}]}}
  - {type: PodLimit, weight: 1, config: {max: 2, selector: {matchLabels: {app: web}}}}
  - type: Rules
    weight: 1
    config:
      filters:
      - {name: same-zone, expression: 'pod.metadata.?labels[?"zone"].orValue("") in ["", node.metadata.labels["zone"]]'}
      - {name: odd, expression: 'pod.metadata.?labels[?"app"].orValue("") != "batch" || !(podRequests["cpu"].isGreaterThan(quantity("3m")) && podRequests["cpu"].isLessThan(quantity("6m")))'}
      scores:
      - {name: free, expression: 'usage.free["cpu"].asApproximateFloat()'}
`

func members(tb testing.TB, text string) []engine.WeightedPolicy {
	tb.Helper()
	c, err := config.Parse("outboard.yaml", []byte(text), config.Types{Policies: standard.Types(), Signals: signals.Types()})
	if err != nil {
		tb.Fatal(err)
	}
	var all []engine.WeightedPolicy
	for _, p := range c.Profiles[0].Policies {
		all = append(all, engine.WeightedPolicy{Name: p.Name, Policy: p.Policy, Weight: p.Weight})
	}
	return all
}

func engineOf(tb testing.TB, members []engine.WeightedPolicy) *engine.Engine {
	tb.Helper()
	e, err := engine.New(engine.Options{Policies: members})
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// world is a cluster as objects.
type world struct {
	nodes []*corev1.Node
	pods  []*corev1.Pod // on nodes, or nominated to one
	pools []*snapshot.Ledger
}

func (w *world) view() *snapshot.View {
	var b snapshot.Builder
	for _, n := range w.nodes {
		b.SetNode(n)
	}
	for _, pod := range w.pods {
		b.SetPod(pod)
	}
	for _, l := range w.pools {
		b.SetLedger(l)
	}
	return b.View()
}

// without returns the world in which these pods are gone, with their allocations.
func (w *world) without(gone ...types.UID) *world {
	rest := &world{nodes: w.nodes}
	for _, pod := range w.pods {
		if !slices.Contains(gone, pod.UID) {
			rest.pods = append(rest.pods, pod)
		}
	}
	for _, l := range w.pools {
		next := &snapshot.Ledger{Resource: l.Resource, LastAt: l.LastAt}
		for _, u := range l.Units {
			kept := snapshot.LedgerUnit{Name: u.Name, Capacity: u.Capacity}
			for _, c := range u.Allocations {
				if !slices.Contains(gone, c.Pod) {
					kept.Allocations = append(kept.Allocations, c)
				}
			}
			next.Units = append(next.Units, kept)
		}
		for _, p := range l.Pods {
			if !slices.Contains(gone, p.UID) {
				next.Pods = append(next.Pods, p)
			}
		}
		rest.pools = append(rest.pools, next)
	}
	return rest
}

// allocation adds an allocation of the pod to the pool of a license.
func (w *world) allocation(license string, pod *corev1.Pod, seats, capacity int64, at time.Time) {
	resource := "licenses/" + license
	i := slices.IndexFunc(w.pools, func(l *snapshot.Ledger) bool { return l.Resource == resource })
	if i < 0 {
		i = len(w.pools)
		w.pools = append(w.pools, &snapshot.Ledger{Resource: resource, Units: []snapshot.LedgerUnit{{Name: "seats", Capacity: capacity}}})
	}
	l := w.pools[i]
	allocations := append(l.Units[0].Allocations, snapshot.LedgerAllocation{Pod: pod.UID, Amount: seats})
	slices.SortFunc(allocations, func(a, b snapshot.LedgerAllocation) int { return compareText(string(a.Pod), string(b.Pod)) })
	l.Units[0].Allocations = allocations
	l.Pods = append(l.Pods, snapshot.LedgerPod{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName, At: at})
	l.LastAt = at
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// The resources that kube-scheduler counts, besides pods.
var counted = []corev1.ResourceName{"cpu", "memory", gpuMemory, "aliyun.com/gpu-count", "example.com/fpga"}

const gpuMemory = "aliyun.com/gpu-mem"

// admits reports whether kube-scheduler's own plugins let the pod run on the node, by rules written for this test.
func (w *world) admits(pod *corev1.Pod, n *corev1.Node) bool {
	tolerates := func(taint corev1.Taint) bool {
		return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.Key == taint.Key && t.Value == taint.Value && t.Effect == taint.Effect
		})
	}
	if n.Spec.Unschedulable || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return !tolerates(t) }) {
		return false
	}
	for key, value := range pod.Spec.NodeSelector {
		if n.Labels[key] != value {
			return false
		}
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		if !slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool {
			return !slices.ContainsFunc(t.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return !slices.Contains(r.Values, n.Labels[r.Key]) })
		}) {
			return false
		}
	}
	return w.hasRoom(pod, n, false) && w.hasRoom(pod, n, true)
}

func (w *world) hasRoom(pod *corev1.Pod, n *corev1.Node, nominated bool) bool {
	here, used := int64(1), map[corev1.ResourceName]int64{}
	add := func(p *corev1.Pod) {
		for _, c := range p.Spec.Containers {
			for _, name := range counted {
				q := c.Resources.Requests[name]
				used[name] += q.MilliValue()
			}
		}
	}
	add(pod)
	for _, p := range w.pods {
		waits := p.Spec.NodeName == "" && nominated && p.Status.NominatedNodeName == n.Name && *p.Spec.Priority >= *pod.Spec.Priority
		if p.Spec.NodeName == n.Name || waits {
			here++
			add(p)
		}
	}
	for _, name := range counted {
		requested := slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { q := c.Resources.Requests[name]; return !q.IsZero() })
		q := n.Status.Allocatable[name]
		if requested && used[name] > q.MilliValue() {
			return false
		}
	}
	return here <= n.Status.Allocatable.Pods().Value()
}

// fitting returns the nodes on which the pod fits: kube-scheduler calls filter for those that it admits.
func (w *world) fitting(tb testing.TB, e *engine.Engine, pod *corev1.Pod) []string {
	tb.Helper()
	view := w.view()
	var nodes []*snapshot.Node
	for n := range view.All() {
		if w.admits(pod, n.Object) {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	var result engine.Result
	if err := e.Filter(tb.Context(), engine.Request{Pod: pod, View: view, Nodes: nodes}, &result); err != nil {
		tb.Fatal(err)
	}
	var names []string
	for _, i := range result.Kept {
		names = append(names, nodes[i].Name)
	}
	return names
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// random returns a cluster with a few pods, each on a node where it fits, and a pod to place.
func random(tb testing.TB, r *rand.Rand, e *engine.Engine) (*world, *corev1.Pod) {
	w := &world{}
	for i := range 1 + r.IntN(3) {
		w.nodes = append(w.nodes, randomNode(r, i))
	}
	for i := range 2 + r.IntN(8) {
		pod := randomPod(r, i, 4)
		fits := w.fitting(tb, e, pod)
		if len(fits) == 0 {
			continue
		}
		name := fits[r.IntN(len(fits))]
		if r.IntN(12) == 0 {
			pod.Status.NominatedNodeName = name
			w.pods = append(w.pods, pod)
			continue
		}
		at := start.Add(time.Duration(i) * time.Minute)
		view := w.view()
		planned, _ := e.Planned(view, pod, view.Node(name), at)
		pod = planned.DeepCopy()
		pod.Spec.NodeName, pod.Status.StartTime = name, &metav1.Time{Time: at}
		if r.IntN(10) == 0 {
			pod.DeletionTimestamp = &metav1.Time{Time: at}
		}
		if r.IntN(10) == 0 {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet"}}
		}
		w.pods = append(w.pods, pod)
		for license, capacity := range map[string]int64{"cad": 4, "sim": 2} {
			if seats := seatsOf(pod, license); seats > 0 && r.IntN(5) > 0 {
				w.allocation(license, pod, seats, capacity, at)
			}
		}
	}
	pod := randomPod(r, 99, 9)
	switch r.IntN(8) {
	case 0:
		pod.Spec.NodeSelector = map[string]string{"zone": "b", "disk": "ssd"}
	case 1:
		pod.Spec.NodeSelector = map[string]string{"zone": "a"}
	case 2:
		in := func(key, value string) corev1.NodeSelectorRequirement {
			return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
		}
		terms := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{in("zone", "b"), in("disk", "ssd")}}, {MatchExpressions: []corev1.NodeSelectorRequirement{in("zone", "c")}}}
		required := &corev1.NodeSelector{NodeSelectorTerms: terms[:1+r.IntN(2)]}
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
	}
	return w, pod
}

func seatsOf(pod *corev1.Pod, license string) int64 {
	var seats int64
	_, _ = fmt.Sscanf(pod.Annotations["outboard.dev/licenses"], license+"=%d", &seats)
	return seats
}

func randomNode(r *rand.Rand, i int) *corev1.Node {
	gpus, each := 1+r.Int64N(2), 8+2*r.Int64N(5)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), UID: types.UID(fmt.Sprintf("node-%d", i)), Labels: map[string]string{"zone": string(rune('a' + r.IntN(2)))}}}
	if r.IntN(2) == 0 {
		n.Labels["disk"] = "ssd"
	}
	n.Status.Allocatable = corev1.ResourceList{
		"cpu": *resource.NewMilliQuantity(8+r.Int64N(9), resource.DecimalSI), "memory": *resource.NewQuantity((8+r.Int64N(9))<<20, resource.BinarySI),
		"pods": *resource.NewQuantity(2+r.Int64N(5), resource.DecimalSI), "example.com/fpga": *resource.NewQuantity(r.Int64N(4), resource.DecimalSI),
		gpuMemory: *resource.NewQuantity(gpus*each, resource.DecimalSI), "aliyun.com/gpu-count": *resource.NewQuantity(gpus, resource.DecimalSI),
	}
	n.Status.Capacity = n.Status.Allocatable
	switch r.IntN(10) {
	case 0:
		n.Spec.Unschedulable = true
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
	case 1, 2:
		n.Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "reserved", Effect: corev1.TaintEffectNoSchedule}}
	case 3:
		n.Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "reserved", Effect: corev1.TaintEffectNoSchedule}, {Key: "old", Effect: corev1.TaintEffectNoExecute}}
	}
	return n
}

// randomPod returns a pod that requests up to most of each resource.
func randomPod(r *rand.Rand, i int, most int64) *corev1.Pod {
	priority := int32(10 * r.IntN(3))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("p%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)), Labels: map[string]string{}},
		Spec:       corev1.PodSpec{Priority: &priority, Containers: []corev1.Container{{Name: "main"}}},
	}
	list := corev1.ResourceList{"cpu": *resource.NewMilliQuantity(1+r.Int64N(most), resource.DecimalSI)}
	if r.IntN(3) == 0 {
		list["memory"] = *resource.NewQuantity((1+r.Int64N(most))<<20, resource.BinarySI)
	}
	limits := corev1.ResourceList{}
	if r.IntN(2) == 0 {
		list[gpuMemory] = *resource.NewQuantity(2+2*r.Int64N(most), resource.DecimalSI)
		limits[gpuMemory] = list[gpuMemory]
		if r.IntN(4) == 0 {
			pod.Labels["aliyun.com/gpu-count"] = "2"
		}
	}
	if r.IntN(4) == 0 {
		list["example.com/fpga"] = *resource.NewQuantity(1+r.Int64N(3), resource.DecimalSI)
		limits["example.com/fpga"] = list["example.com/fpga"]
	}
	if r.IntN(3) == 0 {
		pod.Annotations = map[string]string{"outboard.dev/licenses": fmt.Sprintf("%s=%d", []string{"cad", "sim"}[r.IntN(2)], 1+r.IntN(2))}
	}
	pod.Labels["app"] = []string{"web", "web", "batch", "other"}[r.IntN(4)]
	if r.IntN(6) == 0 {
		pod.Labels["zone"] = "a"
	}
	if r.IntN(6) == 0 {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpEqual, Value: "reserved", Effect: corev1.TaintEffectNoSchedule}}
	}
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: limits}
	return pod
}
