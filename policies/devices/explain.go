package devices

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

// maxListed is how many units of a node are listed.
const maxListed = 16

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
	switch has := p.unitsOf(c.pod, n); {
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
	lines = append(lines, explainUnits(hw, u)...)
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
		if units := c.policy.unitsOf(c.pod, n); units != "" {
			lines = append(lines, fmt.Sprintf("the pod: has %s on node %s", units, n.Name))
		}
	}
	return lines
}

// unitsOf lists the units of the node that the pod holds: by its allocation, or else by its
// annotation. It is "" if units have no names.
func (p *devices) unitsOf(pod types.UID, n *snapshot.Node) string {
	if p.config.Units == None {
		return ""
	}
	var names []string
	for name := range allocations.Of(n.Ledger(p.config.Resource), pod) { // also those that are gone
		names = append(names, name)
	}
	if len(names) > 0 {
		return strings.Join(names, ", ")
	}
	for i, held := range p.usage.Of(n).held {
		if slices.ContainsFunc(held, func(h allocations.Held) bool { return h.UID == pod }) {
			names = append(names, p.hardware.Of(n).units[i].name)
		}
	}
	return strings.Join(names, ", ")
}

// explainUnits lists the units of the node, what is free of each, and which pods hold the rest.
func explainUnits(hw *hardware, u *usage) []string {
	listed := make([]string, len(hw.units))
	for i, unit := range hw.units {
		text := ""
		switch {
		case unit.capacity == 0:
			text = "out of use"
		case unit.capacity == 1 && u.free(i) == 1:
			text = "free"
		case unit.capacity == 1:
			text = "in use"
		default:
			text = fmt.Sprintf("free: %d of %d", u.free(i), unit.capacity)
		}
		switch pods := u.held[i]; {
		case len(pods) > 0 && text == "in use":
			text += " by " + allocations.List(pods)
		case len(pods) > 0:
			text += "; held by " + allocations.List(pods)
		}
		if unit.name != undivided {
			text = fmt.Sprintf("%s (%s)", unit.name, text)
		}
		listed[i] = text
	}
	lines := []string{"the node: " + policy.Join(listed, maxListed)}
	if len(u.unplaced) > 0 && hw.units[0].name != undivided {
		lines = append(lines, fmt.Sprintf("pods on unknown units: %s; %d left in total", allocations.List(u.unplaced), u.left))
	}
	return lines
}
