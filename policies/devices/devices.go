// Package devices is the policy Devices: units of any countable extended resource.
// README.md in this folder is its documentation.
package devices

import (
	"context"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/snapshot"
)

// devices is the policy. The units of a node are divided into parts. A pod gets its units from one
// part if together is set, and otherwise from as few parts as possible.
type devices struct {
	config     Config
	annotation string // "" if pods do not get the names of their units
	together   bool
	reasons    partReasons // where together is set
	hardware   *snapshot.ObjectFact[hardware]
	usage      *snapshot.Fact[usage]
}

func newDevices(config Config) *devices {
	p := &devices{config: config, annotation: config.annotation()}
	switch {
	case config.AllocationMode == Shares:
		p.together, p.reasons = true, ofOneUnit
	case config.SameGroup == Required:
		p.together, p.reasons = true, ofOneGroup
	}
	p.hardware = snapshot.NewObjectFact(p.hardwareOf)
	p.usage = snapshot.NewFact(func(n *snapshot.Node) usage {
		return p.usageOf(n, n.Ledger(config.Resource), p.hardware.Of(n))
	})
	return p
}

func (p *devices) Inputs() policy.Inputs { return p.config.Inputs() }

func (c *Config) Inputs() policy.Inputs {
	return policy.Inputs{
		Resources:        []corev1.ResourceName{corev1.ResourceName(c.Resource)},
		AllocationFields: []string{"capacityFrom", "units", "unitsFrom", "allocationMode", "sharesPerUnit"},
	}
}

func (p *devices) Prepare(_ context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	want := p.request(pod)
	if want == 0 {
		return nil, nil
	}
	c := &cycle{policy: p, view: view, pod: pod.UID, want: want, none: noDevices}
	if p.isUnreported(view) {
		c.none = unreportedDevices
	}
	return c, nil
}

// isUnreported reports whether no node of the view has any of the resource, although nodes must
// report it in status.allocatable. Invalid data count as some.
func (p *devices) isUnreported(view *snapshot.View) bool {
	for n := range view.All() {
		if p.config.Units == Named || p.hardware.Of(n).problem != noDevices {
			return false
		}
	}
	return view.Len() > 0
}

// cycle is the policy prepared for one pod that requests the resource.
type cycle struct {
	policy *devices
	view   *snapshot.View
	pod    types.UID
	want   int64
	none   *policy.Reason // why a node without units does not fit
}

// Signature implements policy.Signature: how much the pod requests, and the reason for nodes
// without units. Everything else that Filter and Score read is the node's, with its ledger, except
// for which pod asks: that matters only where the pod has units already.
func (c *cycle) Signature() string {
	return strconv.FormatInt(c.want, 10) + c.none.Code
}

func (c *cycle) Filter(n *snapshot.Node) policy.Verdict {
	hw, u := c.policy.hardware.Of(n), c.policy.usage.Of(n)
	if u.holders.Has(c.pod) {
		ledger := n.Ledger(c.policy.config.Resource)
		if hw.serves(ledger, c.pod) || n.Has(c.pod) {
			return policy.Verdict{}
		}
		without := c.policy.usageOf(n, allocations.Without(ledger, c.pod), hw)
		u = &without
	}
	verdict := c.policy.evaluate(c.want, hw, u)
	if verdict.Reason == noDevices {
		verdict.Reason = c.none
	}
	return verdict
}

// evaluate returns the verdict on whether enough is left for a pod that requests want.
func (p *devices) evaluate(want int64, hw *hardware, u *usage) policy.Verdict {
	shares := p.config.AllocationMode == Shares
	switch {
	case hw.problem != nil:
		return policy.Verdict{Reason: hw.problem, Unresolvable: true}
	case want > hw.capacity && !shares:
		return policy.Verdict{Reason: tooFewDevices, Unresolvable: true, Have: hw.capacity, Want: want}
	case want > hw.largest && p.together:
		return policy.Verdict{Reason: p.reasons.tooSmall, Unresolvable: true, Have: hw.largest, Want: want}
	case want > u.left && !shares:
		return policy.Verdict{Reason: insufficientDevices, Have: u.left, Want: want}
	case want > u.mostFree && p.together:
		return policy.Verdict{Reason: p.reasons.full, Have: u.mostFree, Want: want}
	}
	return policy.Verdict{}
}

// Score implements policy.Score. If one group is only preferred, pods that request several units
// score nodes with room in one group from 50 to 100, and other nodes from 0 to 50.
func (c *cycle) Score(n *snapshot.Node) int64 {
	hw, u := c.policy.hardware.Of(n), c.policy.usage.Of(n)
	if hw.capacity == 0 {
		return 0
	}
	used := hw.capacity - u.left
	if !u.holders.Has(c.pod) {
		used = min(hw.capacity, snapshot.AddAmounts(used, c.want))
	}
	score := c.policy.config.ScoringStrategy.Type.Score(used, hw.capacity)
	if c.policy.config.GroupsFrom == nil || c.policy.together || c.want == 1 {
		return score
	}
	if score /= 2; u.mostFree >= c.want {
		score += policy.MaxScore / 2
	}
	return score
}

func (p *devices) Ledgers(pod *corev1.Pod, node *snapshot.Node) ([]snapshot.LedgerKey, error) {
	if p.request(pod) == 0 {
		return nil, nil
	}
	return []snapshot.LedgerKey{{Resource: p.config.Resource, Node: node.Name}}, nil
}

func (p *devices) Reserve(ask policy.ReserveRequest) (policy.Allocation, policy.Verdict) {
	others, ledger := allocations.Others(ask)
	want, hw := p.request(ask.Pod), p.hardware.Of(ask.Node)
	u := p.usageOf(others, ledger, hw)
	if verdict := p.evaluate(want, hw, &u); !verdict.Fits() {
		return policy.Allocation{}, verdict
	}
	allocation := policy.Allocation{Amounts: p.choose(want, hw, &u)}
	for _, unit := range hw.units {
		allocation.Units = append(allocation.Units, policy.Capacity{Unit: unit.name, Capacity: unit.capacity})
	}
	if p.annotation != "" {
		names := make([]string, len(allocation.Amounts))
		for i, a := range allocation.Amounts {
			names[i] = a.Unit
		}
		allocation.Annotations = map[string]string{p.annotation: strings.Join(names, ",")}
	}
	return allocation, policy.Verdict{}
}

func (p *devices) ValidateAllocation(ask policy.ReserveRequest) (after []types.UID, verdict policy.Verdict) {
	if !p.hardware.Of(ask.Node).serves(ask.Ledger, ask.Pod.UID) {
		return nil, policy.Verdict{Reason: unusableAllocation}
	}
	return nil, policy.Verdict{}
}

// serves reports whether the node has what the pod has allocated in the ledger, if anything.
func (hw *hardware) serves(ledger *snapshot.Ledger, pod types.UID) bool {
	return hw.problem == nil && allocations.Serves(ledger, pod, func(unit string) int64 {
		if at, ok := hw.index[unit]; ok {
			return hw.units[at].capacity
		}
		return 0
	})
}

// Units implements policy.UnitLister. What pods hold of unknown units is subtracted from the node
// as a whole, so units may look freer than they are.
func (p *devices) Units(view *snapshot.View) policy.UnitList {
	list := policy.UnitList{Resource: corev1.ResourceName(p.config.Resource), Title: p.config.Resource}
	for n := range view.All() {
		if units := p.usage.Of(n).units; len(units) > 0 {
			list.Nodes = append(list.Nodes, policy.NodeUnits{Node: n.Name, Units: units})
		}
	}
	return list
}

// choose returns what a pod that fits gets: everything from the part that the strategy prefers, if
// one part is enough, and otherwise from as few parts as possible.
func (p *devices) choose(want int64, hw *hardware, u *usage) []policy.Amount {
	var parts []int
	for i, unit := range hw.units {
		if unit.part == i {
			parts = append(parts, i)
		}
	}
	slices.SortStableFunc(parts, func(i, j int) int {
		if u.partFree[i] >= want && u.partFree[j] >= want {
			return p.config.ScoringStrategy.Type.Compare(u.partFree[i], u.partFree[j])
		}
		return policy.Spread.Compare(u.partFree[i], u.partFree[j]) // as few parts as possible
	})
	given := make([]int64, len(hw.units))
	for _, part := range parts {
		for i, unit := range hw.units {
			if unit.part == part {
				given[i] = min(want, u.free(i))
				want -= given[i]
			}
		}
	}
	var amounts []policy.Amount
	for i, amount := range given {
		if amount > 0 {
			amounts = append(amounts, policy.Amount{Unit: hw.units[i].name, Amount: amount})
		}
	}
	return amounts
}
