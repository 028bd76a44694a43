package devices

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/claims"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

// maxListed is how many units of a node are listed.
const maxListed = 16

// Explain implements policy.Explainer.
func (c *cycle) Explain(n *snapshot.Node) []string {
	if n == nil {
		return c.explainPod()
	}
	p, resource := c.policy, c.policy.config.Resource
	hw, u := p.hardware.Of(n), p.usage.Of(n)
	capacity, allocatable := p.reported(n.Object)
	switch {
	case hw.problem == pluginDown:
		return []string{fmt.Sprintf("the node: allocatable 0 of %d %s", capacity, resource)}
	case hw.problem == invalidDevices:
		return []string{"the node: " + p.declared(n.Object)}
	case hw.problem != nil:
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
	lines = append(lines, p.explainUnits(n, hw, u)...)
	if p.config.Units != Named && capacity > allocatable {
		lines = append(lines, fmt.Sprintf("unhealthy: %d of %d (in status.capacity, but not in status.allocatable)", capacity-allocatable, capacity))
	}
	return lines
}

// declared returns what the node declares about its units.
func (p *devices) declared(node *corev1.Node) string {
	var texts []string
	for _, from := range []*fields.From{p.config.CapacityFrom, p.config.UnitsFrom} {
		if text, ok := from.Of(node); ok {
			texts = append(texts, fmt.Sprintf("%s is %.200q", from, text))
		}
	}
	if len(texts) == 0 {
		_, allocatable := p.reported(node)
		texts = append(texts, fmt.Sprintf("allocatable %d %s", allocatable, p.config.Resource))
	}
	if from := p.config.GroupsFrom; from != nil {
		texts = append(texts, fmt.Sprintf("annotation %s is %.200q", from.Annotation, node.Annotations[from.Annotation]))
	}
	return strings.Join(texts, "; ")
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
	listed := make([]string, len(hw.units))
	for i, unit := range hw.units {
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
			text += " by " + claims.List(pods)
		case len(pods) > 0:
			text += "; held by " + claims.List(pods)
		}
		if unit.name != undivided {
			text = fmt.Sprintf("%s (%s)", unit.name, text)
		}
		listed[i] = text
	}
	lines := []string{"the node: " + policy.Join(listed, maxListed)}
	if len(held.unplaced) > 0 && hw.units[0].name != undivided {
		lines = append(lines, fmt.Sprintf("pods on unknown units: %s; %d left in total", claims.List(held.unplaced), u.left))
	}
	return lines
}

// holdings are what pods hold of a node.
type holdings struct {
	byUnit   [][]claims.Held // in the order of the hardware's units
	unplaced []claims.Held   // of units that are unknown, or no longer exist
}

func (p *devices) holdings(n *snapshot.Node, hw *hardware) holdings {
	h := holdings{byUnit: make([][]claims.Held, len(hw.units))}
	ledger := n.Ledger(p.config.Resource)
	claimants, unclaimed := claims.On(n, ledger)
	for uid, c := range claimants {
		for name, amount := range claims.Of(ledger, uid) {
			held := claims.Held{Holder: c.Holder, Amount: amount}
			if u, ok := hw.index[name]; ok {
				h.byUnit[u] = append(h.byUnit[u], held)
			} else {
				h.unplaced = append(h.unplaced, held)
			}
		}
	}
	for _, pod := range unclaimed {
		want := p.request(pod)
		if want == 0 {
			continue
		}
		holder, units, each := claims.HolderOf(pod), p.named(pod, hw), p.each(want)
		if _, ok := hw.index[undivided]; ok {
			units, each = []int{0}, want
		}
		left := want
		for _, u := range units {
			h.byUnit[u] = append(h.byUnit[u], claims.Held{Holder: holder, Amount: each})
			left -= min(left, each)
		}
		if left > 0 {
			h.unplaced = append(h.unplaced, claims.Held{Holder: holder, Amount: left})
		}
	}
	return h
}
