package devices

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

const (
	// maxUnitName bounds the name of a unit, so that the names of all the units of a
	// node fit into one annotation of an allocation.
	maxUnitName = 63
	// undivided is the single unit of a node with units: None. No other unit has this name.
	undivided = "*"
)

// hardware is what a node reports about its units.
type hardware struct {
	problem  *policy.Reason // why none of its units can be used
	units    []unit
	index    map[string]int // of units, by name
	capacity int64          // of all units together
	largest  int64          // the capacity of the largest part
}

// unit is one device, or all devices of a node with units: None.
type unit struct {
	name string
	// capacity is in the resource's unit: 1 or 0 for whole units.
	capacity int64
	// part is the index of one unit of its part, the same for all units of the part. A part is a
	// group if the node reports groups, one unit if pods get shares of one unit, and otherwise the
	// whole node.
	part int
}

func (p *devices) hardwareOf(node *corev1.Node) hardware {
	hw := hardware{}
	if hw.units, hw.problem = p.units(node); hw.problem != nil {
		return hw
	}
	hw.index = map[string]int{}
	for i, u := range hw.units {
		if _, twice := hw.index[u.name]; twice {
			return hardware{problem: invalidDevices}
		}
		hw.index[u.name] = i
		hw.capacity += u.capacity
	}
	if hw.capacity == 0 {
		return hardware{problem: noDevices}
	}
	if !p.divide(&hw, node) {
		return hardware{problem: invalidDevices}
	}
	capacities := make([]int64, len(hw.units)) // by part
	for _, u := range hw.units {
		capacities[u.part] += u.capacity
	}
	hw.largest = slices.Max(capacities)
	if p.isDown(node) {
		hw.problem = pluginDown
	}
	return hw
}

// units returns the units of the node, all in one part.
func (p *devices) units(node *corev1.Node) ([]unit, *policy.Reason) {
	if p.config.Units == Named {
		return p.namedBy(node)
	}
	count, ok := p.count(node)
	switch {
	case !ok:
		return nil, invalidDevices
	case p.config.Units == None:
		return []unit{{name: undivided, capacity: count}}, nil
	}
	if count /= p.size(); count > snapshot.MaxLedgerUnits {
		return nil, invalidDevices
	}
	units := make([]unit, count)
	for i := range units {
		units[i] = unit{name: strconv.Itoa(i), capacity: p.size()}
	}
	return units, nil
}

// size is the default capacity of a unit.
func (p *devices) size() int64 { return int64(p.config.SharesPerUnit) }

// count returns how much of the resource the node has, 0..allocations.MaxCapacity.
func (p *devices) count(node *corev1.Node) (n int64, ok bool) {
	if text, declared := p.config.CapacityFrom.Of(node); declared {
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		return n, err == nil && n >= 0 && n <= allocations.MaxCapacity
	}
	capacity, n := p.reported(node)
	if p.isDown(node) {
		n = capacity // so that people see what the node has
	}
	return n, n <= allocations.MaxCapacity
}

// isDown reports whether the kubelet knows the resource, and refuses all pods with it.
func (p *devices) isDown(node *corev1.Node) bool {
	capacity, allocatable := p.reported(node)
	return capacity > 0 && allocatable == 0 && node.Status.Allocatable != nil
}

// reported returns how much of the resource the node reports, and how much of it a pod can get: the
// rest is unhealthy, and it is not known which units these are.
func (p *devices) reported(node *corev1.Node) (capacity, allocatable int64) {
	c, a := node.Status.Capacity[corev1.ResourceName(p.config.Resource)], node.Status.Allocatable[corev1.ResourceName(p.config.Resource)]
	return c.Value(), max(0, a.Value())
}

// namedBy returns the units that the node names.
func (p *devices) namedBy(node *corev1.Node) ([]unit, *policy.Reason) {
	text, _ := p.config.UnitsFrom.Of(node)
	if strings.TrimSpace(text) == "" {
		return nil, noDevices
	}
	entries := slices.Collect(p.config.UnitsFrom.Items(text))
	if len(entries) > snapshot.MaxLedgerUnits {
		return nil, invalidDevices
	}
	units := make([]unit, len(entries))
	for i, entry := range entries {
		name, size, sized := strings.Cut(entry, "=")
		units[i] = unit{name: strings.TrimSpace(name), capacity: p.size()}
		if sized {
			n, err := strconv.ParseInt(strings.TrimSpace(size), 10, 64)
			if err != nil || n < 0 || n > allocations.MaxCapacity {
				return nil, invalidDevices
			}
			if p.config.AllocationMode == WholeUnits {
				n = min(n, 1)
			}
			units[i].capacity = n
		}
		if !validName(units[i].name) {
			return nil, invalidDevices
		}
	}
	return units, nil
}

// validName permits the characters of device files and PCI addresses.
func validName(name string) bool {
	return name != "" && len(name) <= maxUnitName && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.:/", r)
	})
}

// divide divides the units into parts. It returns false if the node puts a unit into two groups. It
// ignores names of units that the node does not have.
func (p *devices) divide(hw *hardware, node *corev1.Node) bool {
	if p.config.AllocationMode == WholeUnits && p.config.GroupsFrom == nil {
		return true
	}
	for i := range hw.units {
		hw.units[i].part = i
	}
	if p.config.GroupsFrom == nil {
		return true
	}
	grouped := make([]bool, len(hw.units))
	groups := node.Annotations[p.config.GroupsFrom.Annotation]
	for group := range fields.List(groups, ";") {
		first := -1
		for name := range fields.List(group, ",") {
			i, ok := hw.index[name]
			switch {
			case !ok:
				continue
			case grouped[i]:
				return false
			case first < 0:
				first = i
			}
			grouped[i], hw.units[i].part = true, first
		}
	}
	return true
}

// usage is what pods hold of a node.
type usage struct {
	held     [][]allocations.Held // of each unit
	unplaced []allocations.Held   // of units that are unknown, or not listed: on the node as a whole
	holders  allocations.Holders
	units    []policy.Unit // each used up to its capacity
	partFree []int64       // of each part, at the index that identifies it
	// left is what can be allocated in total. It may be less than the units have, because of
	// unplaced.
	left     int64
	mostFree int64 // of one part, not more than left
}

// usageOf computes the usage with the given ledger, which may be nil, instead of the node's own. A
// pod in the ledger holds what the ledger says, and any other pod on the node what it requests: of
// the units in its annotation, if it has one.
func (p *devices) usageOf(n *snapshot.Node, ledger *snapshot.Ledger, hw *hardware) usage {
	u := usage{held: make([][]allocations.Held, len(hw.units))}
	allocated, unallocated := allocations.On(n, ledger)
	for _, c := range allocated {
		held := allocations.Held{Holder: c.Holder, Amount: c.Amount}
		if at, ok := hw.index[c.Unit]; ok {
			u.held[at] = append(u.held[at], held)
		} else {
			u.unplaced = append(u.unplaced, held)
		}
		u.holders.Add(c.UID)
	}
	for _, i := range unallocated {
		pod := n.Pods[i]
		want := p.request(pod)
		if want == 0 {
			continue
		}
		holder, units, each := allocations.HolderOf(pod), p.named(pod, hw), want
		if p.config.AllocationMode == WholeUnits && p.config.Units != None {
			each = 1
		}
		for _, at := range units { // all of each if it has shares of one unit, and names several
			u.held[at] = append(u.held[at], allocations.Held{Holder: holder, Amount: each})
			want -= min(want, each)
		}
		if want > 0 {
			u.unplaced = append(u.unplaced, allocations.Held{Holder: holder, Amount: want})
		}
		u.holders.Add(pod.UID)
	}
	u.sum(hw)
	return u
}

// named returns the units of the node that the pod has without an allocation, without duplicates:
// those in its annotation, or the only one if units have no names.
func (p *devices) named(pod *corev1.Pod, hw *hardware) []int {
	if at, ok := hw.index[undivided]; ok {
		return []int{at}
	}
	var units []int
	for name := range fields.List(pod.Annotations[p.annotation], ",") {
		if at, ok := hw.index[name]; ok && !slices.Contains(units, at) {
			units = append(units, at)
		}
	}
	return units
}

func (u *usage) sum(hw *hardware) {
	u.units, u.partFree = make([]policy.Unit, len(hw.units)), make([]int64, len(hw.units))
	for i, unit := range hw.units {
		used := min(unit.capacity, allocations.Sum(u.held[i]))
		u.units[i] = policy.Unit{Name: unit.name, Capacity: unit.capacity, Used: used, Unhealthy: hw.problem != nil}
		u.partFree[unit.part] += u.free(i)
		u.left += u.free(i)
		u.mostFree = max(u.mostFree, u.partFree[unit.part])
	}
	u.left = max(0, u.left-allocations.Sum(u.unplaced))
	u.mostFree = min(u.mostFree, u.left)
}

// free returns what is left of a unit, 0 or more.
func (u *usage) free(unit int) int64 { return u.units[unit].Capacity - u.units[unit].Used }

// request returns how much of the resource the pod requests.
func (p *devices) request(pod *corev1.Pod) int64 {
	return snapshot.ExtendedResourceRequest(pod, corev1.ResourceName(p.config.Resource))
}
