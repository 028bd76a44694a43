package devices

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy/claims"
	"outboard.dev/outboard/snapshot"
)

const (
	maxListedUnits = 16 // of a node
	maxListedPods  = 4  // of a unit
)

// Explain implements policy.Explainer.
func (c *cycle) Explain(n *snapshot.Node) []string {
	if n == nil {
		return c.explainPod()
	}
	p, resource := c.policy, c.policy.config.Resource
	hw, u := p.hardware.Of(n), p.usage.Of(n)
	if hw.problem != nil {
		return nil
	}
	var lines []string
	switch has := p.unitsOf(c.pod.UID, n); {
	case u.holders.Has(c.pod) && has != "":
		lines = append(lines, fmt.Sprintf("the pod: already has %s", has))
	case u.holders.Has(c.pod):
		lines = append(lines, fmt.Sprintf("the pod: already has some of %s", resource))
	case p.config.Units != None && c.Filter(n).Fits():
		var names []string
		for _, amount := range p.choose(c.want, hw, u) {
			names = append(names, amount.Unit)
		}
		lines = append(lines, fmt.Sprintf("the pod: would get %s", strings.Join(names, ", ")))
	}
	return append(lines, p.explainUnits(n, hw, u)...)
}

// explainPod describes what the pod holds, and on which node.
func (c *cycle) explainPod() []string {
	resource := c.policy.config.Resource
	if c.none == unreportedDevices {
		return []string{resource + ": no node reports any in status.allocatable (if a DeviceClass has it as its extendedResourceName, kube-scheduler " +
			"allocates it from ResourceSlices, which Devices does not count: then remove it from Devices and from managedResources)"}
	}
	var lines []string
	for n := range c.view.All() {
		if !c.policy.usage.Of(n).holders.Has(c.pod) {
			continue
		}
		if units := c.policy.unitsOf(c.pod.UID, n); units != "" {
			lines = append(lines, fmt.Sprintf("the pod: has %s on node %s", units, n.Name))
		}
	}
	return lines
}

// unitsOf lists the units of the node that the pod holds: by its claim, or else by its annotation.
// It is "" if units have no names.
func (p *devices) unitsOf(uid types.UID, n *snapshot.Node) string {
	if p.config.Units == None {
		return ""
	}
	var names []string
	for name := range claims.Of(n.Ledger(p.config.Resource), uid) {
		names = append(names, name)
	}
	at := slices.IndexFunc(n.Pods, func(pod *corev1.Pod) bool { return pod.UID == uid })
	if len(names) == 0 && at >= 0 {
		hw := p.hardware.Of(n)
		for _, u := range p.named(n.Pods[at], hw) {
			names = append(names, hw.units[u].name)
		}
	}
	return strings.Join(names, ", ")
}

// explainUnits lists the units of the node, what is free of each, and which pods hold the rest.
func (p *devices) explainUnits(n *snapshot.Node, hw *hardware, u *usage) []string {
	held := p.holdings(n, hw)
	var listed []string
	for i, unit := range hw.units {
		if len(listed) == maxListedUnits {
			listed = append(listed, fmt.Sprintf("and %d more", len(hw.units)-maxListedUnits))
			break
		}
		text := ""
		switch {
		case unit.capacity == 0:
			text = "out of use"
		case unit.capacity == 1 && u.free[i] == 1:
			text = "free"
		case unit.capacity == 1:
			text = "in use"
		default:
			text = fmt.Sprintf("free: %d of %d", u.free[i], unit.capacity)
		}
		switch pods := held.byUnit[i]; {
		case len(pods) > 0 && text == "in use":
			text += " by " + names(pods)
		case len(pods) > 0:
			text += "; held by " + names(pods)
		}
		if unit.name != undivided {
			text = fmt.Sprintf("%s (%s)", unit.name, text)
		}
		listed = append(listed, text)
	}
	lines := []string{"the node: " + strings.Join(listed, ", ")}
	if len(held.unplaced) > 0 && hw.units[0].name != undivided {
		lines = append(lines, fmt.Sprintf("pods on unknown units: %s; %d left in total", names(held.unplaced), u.left))
	}
	capacity := n.Object.Status.Capacity[corev1.ResourceName(p.config.Resource)]
	allocatable := n.Object.Status.Allocatable[corev1.ResourceName(p.config.Resource)]
	if unhealthy := capacity.Value() - allocatable.Value(); p.config.Units != Named && unhealthy > 0 {
		lines = append(lines, fmt.Sprintf("unhealthy: %d of %d (in status.capacity, but not in status.allocatable)", unhealthy, capacity.Value()))
	}
	return lines
}

// names lists names of pods.
func names(names []string) string {
	slices.Sort(names)
	if more := len(names) - maxListedPods; more > 0 {
		names = append(names[:maxListedPods], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// holdings are the names of the pods that hold something of a node.
type holdings struct {
	byUnit   [][]string // in the order of the hardware's units
	unplaced []string   // pods whose units are unknown, or no longer exist
}

func (p *devices) holdings(n *snapshot.Node, hw *hardware) holdings {
	h := holdings{byUnit: make([][]string, len(hw.units))}
	ledger := n.Ledger(p.config.Resource)
	claimants, unclaimed := claims.On(n, ledger)
	for uid, c := range claimants {
		for name := range claims.Of(ledger, uid) {
			if u, ok := hw.index[name]; ok {
				h.byUnit[u] = append(h.byUnit[u], nameOf(uid, c))
			} else {
				h.unplaced = append(h.unplaced, nameOf(uid, c))
			}
		}
	}
	for _, pod := range unclaimed {
		want := p.requested(pod)
		if want == 0 {
			continue
		}
		name, units := pod.Namespace+"/"+pod.Name, p.named(pod, hw)
		if _, ok := hw.index[undivided]; ok {
			units = []int{0}
		}
		for _, u := range units {
			h.byUnit[u] = append(h.byUnit[u], name)
		}
		if len(units) == 0 || hw.units[0].name != undivided && p.config.AllocationMode == WholeUnits && int64(len(units)) < want {
			h.unplaced = append(h.unplaced, name)
		}
	}
	return h
}

// nameOf returns the name of a pod with claims, or its UID if the name is unknown.
func nameOf(uid types.UID, c *claims.Claimant) string {
	if namespace, name := c.Name(); name != "" {
		return namespace + "/" + name
	}
	return string(uid)
}
