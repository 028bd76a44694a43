package licenses

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Units implements policy.UnitLister: each feature with floating seats is a pool.
func (p *licenses) Units(view *snapshot.View) policy.UnitList {
	list := policy.UnitList{Resource: corev1.ResourceName(strings.TrimSuffix(ledgerPrefix, "/")), Title: "Licenses"}
	all := p.viewHolders(view)
	for _, f := range p.features {
		if !f.floating() {
			continue
		}
		seats := f.floatingSeats(view.Signal(f.signal), all.floating[f], p.whenStale)
		list.Nodes = append(list.Nodes, policy.NodeUnits{Node: f.Name, Group: "Licenses", Units: []policy.Unit{{
			Name: f.Name, Capacity: seats.capacity(), Used: seats.held, Unhealthy: seats.unknown,
		}}})
	}
	return list
}
