package devices

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/claims"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

const (
	// maxUnitName bounds the name of a unit, so that the names of all the units of a
	// node fit into one annotation of a claim.
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

// hardwareOf reads the hardware of the node.
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

// serves reports whether the node has what the pod has claimed in the ledger, if anything.
func (hw *hardware) serves(ledger *snapshot.Ledger, pod types.UID) bool {
	if hw.problem != nil {
		return false
	}
	for name, amount := range claims.Of(ledger, pod) {
		if u, ok := hw.index[name]; !ok || amount > hw.units[u].capacity {
			return false
		}
	}
	return true
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

// count returns how much of the resource the node has, 0..claims.MaxCapacity.
func (p *devices) count(node *corev1.Node) (n int64, ok bool) {
	if text, declared := p.config.CapacityFrom.Of(node); declared {
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		return n, err == nil && n >= 0 && n <= claims.MaxCapacity
	}
	capacity, n := p.reported(node)
	if p.isDown(node) {
		n = capacity // so that people see what the node has
	}
	return n, n <= claims.MaxCapacity
}

// isDown reports whether the kubelet knows the resource, and refuses all pods with it.
func (p *devices) isDown(node *corev1.Node) bool {
	capacity, allocatable := p.reported(node)
	return capacity > 0 && allocatable == 0 && node.Status.Allocatable != nil
}

// reported returns how much of the resource the node reports, and how much of it a pod can get: the rest is unhealthy, and it is not known
// which units these are.
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
	entries := p.config.UnitsFrom.Items(text)
	if len(entries) > snapshot.MaxLedgerUnits {
		return nil, invalidDevices
	}
	units := make([]unit, len(entries))
	for i, entry := range entries {
		name, size, sized := strings.Cut(entry, "=")
		units[i] = unit{name: strings.TrimSpace(name), capacity: p.size()}
		if sized {
			n, err := strconv.ParseInt(strings.TrimSpace(size), 10, 64)
			if err != nil || n < 0 || n > claims.MaxCapacity {
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
	free     []int64 // of each unit, 0 or more
	partFree []int64 // of each part, at the index that identifies it
	// left is what can be allocated in total. It may be less than the sum of free, because the
	// units of some pods are unknown.
	left     int64
	mostFree int64 // of one part, not more than left
	holders  claims.Holders
}

// usageOf computes the usage with the given ledger, which may be nil, instead of the node's own. A
// pod in the ledger holds what the ledger says, and any other pod on the node what it requests: of
// the units in its annotation, if it has one. What pods hold of unlisted or unknown units is
// subtracted from the node as a whole.
func (p *devices) usageOf(n *snapshot.Node, ledger *snapshot.Ledger, hw *hardware) usage {
	var u usage
	claimants, unclaimed := claims.On(n, ledger)
	for uid := range claimants {
		u.holders.Add(claims.PodOf(uid))
	}
	used, unplaced := make([]int64, len(hw.units)), int64(0)
	if ledger != nil {
		for i := range ledger.Units {
			unit := &ledger.Units[i]
			if at, ok := hw.index[unit.Name]; !ok {
				unplaced = snapshot.AddAmounts(unplaced, unit.Used())
			} else {
				used[at] = unit.Used()
			}
		}
	}
	for _, pod := range unclaimed {
		if want := p.request(pod); want > 0 {
			unplaced = snapshot.AddAmounts(unplaced, p.annotated(pod, want, hw, used))
			u.holders.Add(claims.PodOf(pod.UID))
		}
	}
	u.sum(hw, used, unplaced)
	return u
}

// annotated adds to used what a pod that requests want holds of the units in its annotation, and
// returns the rest. If pods get shares of one unit and the annotation names several, the pod holds
// want of each.
func (p *devices) annotated(pod *corev1.Pod, want int64, hw *hardware, used []int64) (rest int64) {
	rest = want
	each := p.each(want)
	for _, u := range p.named(pod, hw) {
		used[u] = snapshot.AddAmounts(used[u], each)
		rest -= min(rest, each)
	}
	return rest
}

// named returns the units of the node in the pod's annotation, without duplicates.
func (p *devices) named(pod *corev1.Pod, hw *hardware) []int {
	var units []int
	for name := range fields.List(pod.Annotations[p.annotation], ",") {
		if u, ok := hw.index[name]; ok && !slices.Contains(units, u) {
			units = append(units, u)
		}
	}
	return units
}

func (u *usage) sum(hw *hardware, used []int64, unplaced int64) {
	u.free, u.partFree = make([]int64, len(hw.units)), make([]int64, len(hw.units))
	for i, unit := range hw.units {
		u.free[i] = max(0, unit.capacity-used[i])
		u.partFree[unit.part] += u.free[i]
		u.left += u.free[i]
		u.mostFree = max(u.mostFree, u.partFree[unit.part])
	}
	u.left = max(0, u.left-unplaced)
	u.mostFree = min(u.mostFree, u.left)
}
