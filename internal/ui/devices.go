package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/snapshot"
)

// devices returns the devices of the node, or of all nodes if that is "", with who has them, by
// driver in the order of the configuration.
func (s *Source) devices(node string) Devices {
	d := Devices{Drivers: []DriverDevices{}}
	view, known := s.View(), map[string]bool{}
	found := false
	for lister := range listers(s.Config()) {
		if !listsDevices(lister) {
			continue
		}
		list := lister.Units(view)
		driver := DriverDevices{Driver: string(list.Resource), Unit: list.Unit, Nodes: []NodeDevices{}}
		if known[driver.Driver] { // two policies have the same devices
			continue
		}
		known[driver.Driver] = true
		for i := range list.Nodes {
			if n := &list.Nodes[i]; node == "" || n.Node == node {
				driver.Nodes = append(driver.Nodes, devicesOf(n, view.Node(n.Node)))
				found = true
			}
		}
		slices.SortFunc(driver.Nodes, func(a, b NodeDevices) int { return cmp.Compare(a.Name, b.Name) })
		d.Drivers = append(d.Drivers, driver)
	}
	switch {
	case node == "" || found || len(d.Drivers) == 0:
	case view.Node(node) == nil:
		d.Error = fmt.Sprintf("node %q not found", node)
	default:
		var drivers []string
		for i := range d.Drivers {
			drivers = append(drivers, d.Drivers[i].Driver)
		}
		d.Error = fmt.Sprintf("node %q has no devices of %s", node, strings.Join(drivers, ", "))
	}
	return d
}

// listsDevices reports whether the units of the policy are devices that ResourceClaims hold, of
// which no ledger says who has them.
func listsDevices(lister policy.UnitLister) bool {
	reader, ok := lister.(policy.InputReader)
	return ok && reader.Inputs().Devices
}

func devicesOf(units *policy.NodeUnits, n *snapshot.Node) NodeDevices {
	node := NodeDevices{Name: units.Node, Model: units.Group, Devices: make([]Device, len(units.Units))}
	for i := range units.Units {
		u := &units.Units[i]
		d := Device{Name: u.Name, Capacity: u.Capacity, Used: u.Used, Healthy: !u.Unhealthy, Claims: []DeviceClaim{}}
		for _, h := range u.Holders {
			claim := DeviceClaim{Namespace: h.Claim.Namespace, Name: h.Claim.Name, Amount: h.Amount}
			if pod := podOn(n, h.Pod); pod != nil {
				holder := allocations.HolderOf(pod)
				claim.Pod = &holder
			}
			d.Claims = append(d.Claims, claim)
		}
		node.Devices[i] = d
	}
	return node
}
