package remote

import (
	"cmp"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/snapshot"
)

// amount is an amount of a resource: cpu in thousandths of a core, all others in their unit.
type amount struct {
	resource corev1.ResourceName
	n        int64
}

// node is what is kept of a Node object.
type node struct {
	name        string
	ready, open bool
	allocatable []amount
}

// pod is what is kept of a bound pod that has not ended.
type pod struct {
	node     string
	requests []amount
}

// controlPlaneTaints repel ordinary pods. Other taints are ignored: whether the pods tolerate them
// is unknown, and nodes with GPUs often have one.
var controlPlaneTaints = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}

func nodeOf(n *corev1.Node) node {
	kept := node{name: n.Name, allocatable: amounts(n.Status.Allocatable)}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			kept.ready = c.Status == corev1.ConditionTrue
		}
	}
	kept.open = kept.ready && !n.Spec.Unschedulable && n.DeletionTimestamp == nil && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && slices.Contains(controlPlaneTaints, t.Key)
	})
	return kept
}

// podOf returns what kube-scheduler counts, including what a pod still holds while it is resized. A
// pod that is not bound, or has ended, holds nothing.
func podOf(p *corev1.Pod) (pod, bool) {
	if p.Spec.NodeName == "" || snapshot.Ended(p) {
		return pod{}, false
	}
	requests := snapshot.PodRequests(p)
	requests[corev1.ResourcePods] = *apiresource.NewQuantity(1, apiresource.DecimalSI)
	return pod{node: unique.Make(p.Spec.NodeName).Value(), requests: amounts(requests)}, true
}

// amounts returns the positive amounts, in order of resource.
func amounts(list corev1.ResourceList) []amount {
	kept := make([]amount, 0, len(list))
	for name, quantity := range list {
		n := quantity.Value()
		if name == corev1.ResourceCPU {
			n = quantity.MilliValue()
		}
		if n > 0 {
			// Decoding allocates each name again for every object.
			kept = append(kept, amount{unique.Make(name).Value(), n})
		}
	}
	slices.SortFunc(kept, func(a, b amount) int { return cmp.Compare(a.resource, b.resource) })
	return kept
}

// capacity is the amount of one resource in a cluster.
type capacity struct{ total, free, largest int64 }

// totals are the amounts of all resources in a cluster.
type totals struct {
	resources          map[corev1.ResourceName]capacity
	nodes, ready, open int
}

// sum adds up the nodes. A node whose pods request more than it has has nothing left, and does not
// reduce what others have left.
func sum(nodes map[types.UID]node, pods map[types.UID]pod) totals {
	used := make(map[string]map[corev1.ResourceName]int64, len(nodes))
	for _, p := range pods {
		on := used[p.node]
		if on == nil {
			on = map[corev1.ResourceName]int64{}
			used[p.node] = on
		}
		for _, a := range p.requests {
			on[a.resource] = snapshot.AddAmounts(on[a.resource], a.n)
		}
	}
	all := totals{resources: map[corev1.ResourceName]capacity{}, nodes: len(nodes)}
	for _, n := range nodes {
		if n.ready {
			all.ready++
		}
		if n.open {
			all.open++
		}
		for _, a := range n.allocatable {
			c := all.resources[a.resource]
			c.total = snapshot.AddAmounts(c.total, a.n)
			if left := max(0, a.n-used[n.name][a.resource]); n.open {
				c.free = snapshot.AddAmounts(c.free, left)
				c.largest = max(c.largest, left)
			}
			all.resources[a.resource] = c
		}
	}
	return all
}

// samples returns the totals as samples, at most most.
func samples(all totals, most int) ([]signal.Sample, error) {
	if 3*len(all.resources)+3 > most {
		return nil, signal.ErrTooMany
	}
	var list []signal.Sample
	add := func(key string, n float64) {
		list = append(list, signal.Sample{Key: key, Number: n})
	}
	add("nodes/total", float64(all.nodes))
	add("nodes/ready", float64(all.ready))
	add("nodes/open", float64(all.open))
	for name, c := range all.resources {
		unit := 1.0
		if name == corev1.ResourceCPU {
			unit = 1000
		}
		add(string(name)+"/total", float64(c.total)/unit)
		add(string(name)+"/free", float64(c.free)/unit)
		add(string(name)+"/largest", float64(c.largest)/unit)
	}
	return list, nil
}
