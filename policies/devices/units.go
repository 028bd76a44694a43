package devices

import (
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Units implements policy.UnitLister. What pods hold of unknown units is subtracted from the node as a whole, so units may look freer than
// they are.
func (p *devices) Units(view *snapshot.View) policy.UnitList {
	list := policy.UnitList{Resource: corev1.ResourceName(p.config.Resource), Title: p.config.Resource}
	for n := range view.All() {
		if units := *p.listed.Of(n); len(units) > 0 {
			list.Nodes = append(list.Nodes, policy.NodeUnits{Node: n.Name, Units: units})
		}
	}
	return list
}

func (p *devices) list(n *snapshot.Node) []policy.Unit {
	hw, usage := p.hardware.Of(n), p.usage.Of(n)
	if len(hw.units) == 0 {
		return nil
	}
	units := make([]policy.Unit, len(hw.units))
	for i, u := range hw.units {
		units[i] = policy.Unit{Name: u.name, Capacity: u.capacity, Used: u.capacity - usage.free[i], Unhealthy: hw.problem != nil}
	}
	return units
}
