package ui

import (
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// node returns the node with the name, and what is on it.
func (s *Source) node(name string, known *resources, h *holders) Node {
	node := Node{Name: name, Taints: []string{}, Resources: []NodeResource{}, Signals: []NodeSignal{}, Rows: []HeldRow{}}
	view := s.View()
	n := view.Node(name)
	if n == nil {
		return node
	}
	node.describe(n.Object)
	for _, r := range known.all {
		x := NodeResource{Units: *s.units(r.Resource, known, name)}
		capacity, reported := n.Object.Status.Capacity[corev1.ResourceName(r.Resource)]
		if reported {
			allocatable := n.Object.Status.Allocatable[corev1.ResourceName(r.Resource)]
			x.Reported = &Reported{capacity.Value(), allocatable.Value()}
		}
		if reported || len(x.Nodes) > 0 {
			node.Resources = append(node.Resources, x)
		}
	}
	for _, status := range s.Signals() {
		if v := view.Signal(status.Name).Of(n); !v.At.IsZero() {
			node.Signals = append(node.Signals, NodeSignal{status.Name, v.Number, v.At, v.Stale})
		}
	}
	held := h.held(s, url.Values{"node": {name}})
	node.Rows = held.Rows
	for _, r := range h.pools(view, []*snapshot.Node{n}) {
		if podOn(n, types.UID(r.UID)) != nil {
			r.judge(&held)
			node.Rows = append(node.Rows, r)
		}
	}
	holds := map[string]bool{}
	for i := range node.Rows {
		holds[node.Rows[i].UID] = true
	}
	for _, pod := range n.Pods {
		if !holds[string(pod.UID)] {
			r := HeldRow{UID: string(pod.UID)}
			r.describe(pod)
			node.Rows = append(node.Rows, r)
		}
	}
	return node
}

// describe sets what the object of the node says.
func (n *Node) describe(object *corev1.Node) {
	n.Status = "Unknown"
	for i := range object.Status.Conditions {
		if c := &object.Status.Conditions[i]; c.Type == corev1.NodeReady {
			n.Status, n.Since, n.Message = "Ready", c.LastTransitionTime.Time, c.Message
			if c.Status != corev1.ConditionTrue {
				n.Status = "NotReady"
			}
		}
	}
	if object.Spec.Unschedulable {
		n.Status += ",SchedulingDisabled"
	}
	for i := range object.Spec.Taints {
		n.Taints = append(n.Taints, object.Spec.Taints[i].ToString())
	}
}
