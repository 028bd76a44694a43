package snapshot

import (
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The bounds of a ledger. The API server rejects more.
const (
	MaxLedgerUnits = 64
	MaxLedgerPods  = 512 // with allocations, of one unit or several

	MaxAllocationAnnotations = 16 // of one allocation
	MaxAllocationAnnotation  = 4 << 10
)

// LedgerKey identifies a ledger.
type LedgerKey struct {
	// Resource is the resource to allocate, such as "aliyun.com/gpu-mem" or "licenses/matlab".
	Resource string
	// Node is the node that has the units; "" for a pool of the whole cluster.
	Node string
}

// Ledger holds which pods have allocated how much of one countable resource: of the units of one
// node, or of a pool. It holds the allocations that Outboard made, not what other tools have
// allocated. A nil *Ledger is empty.
//
// In a View it is the latest known state; the API server has the current one. It is immutable.
type Ledger struct {
	Resource string `json:"resource"`
	Node     string `json:"node,omitempty"`
	// Units are all units, in order of name.
	Units []LedgerUnit `json:"units,omitempty"`
	// Pods are those with allocations, in order of At.
	Pods []LedgerPod `json:"pods,omitempty"`
	// LastAt is the At of the allocation made last.
	LastAt time.Time `json:"lastAt,omitzero"`
}

// LedgerUnit is one GPU, one other device, or one pool.
type LedgerUnit struct {
	Name string `json:"name"`
	// Capacity is how much the unit has, in the resource's unit. The allocations may exceed it if
	// hardware was replaced or is gone (0).
	Capacity int64 `json:"capacity"`
	// Allocations are ordered by Pod, at most one for each pod.
	Allocations []LedgerAllocation `json:"allocations,omitempty"`
}

// LedgerAllocation is what one pod holds of one unit.
type LedgerAllocation struct {
	Pod    types.UID `json:"pod"`
	Amount int64     `json:"amount"` // 1 or more
}

// LedgerPod is a pod with allocations.
type LedgerPod struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// Node is the node to which the pod is bound, or to be bound.
	Node string `json:"node"`
	// At is when the allocation was made. It increases from allocation to allocation in one ledger.
	At time.Time `json:"at"`
	// Token changes whenever a bind attempt relies on the allocation, so that no other replica
	// releases it at the same moment.
	Token string `json:"token"`
	// Shared is true if several attempts to bind the pod have relied on the allocation, so that
	// none of them alone may release it.
	Shared bool `json:"shared,omitempty"`
	// Annotations are those that the Binding must have.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Key returns the key of the ledger.
func (l *Ledger) Key() LedgerKey { return LedgerKey{l.Resource, l.Node} }

// Pod returns the pod with the UID, or nil if it has no allocation.
func (l *Ledger) Pod(uid types.UID) *LedgerPod {
	if l == nil {
		return nil
	}
	for i := range l.Pods {
		if l.Pods[i].UID == uid {
			return &l.Pods[i]
		}
	}
	return nil
}

// Unit returns the unit with the name, or nil.
func (l *Ledger) Unit(name string) *LedgerUnit {
	if l == nil {
		return nil
	}
	for i := range l.Units {
		if l.Units[i].Name == name {
			return &l.Units[i]
		}
	}
	return nil
}

// Used returns the sum of the allocations. A nil unit has none.
func (u *LedgerUnit) Used() int64 {
	if u == nil {
		return 0
	}
	var sum int64
	for _, c := range u.Allocations {
		sum = AddAmounts(sum, c.Amount)
	}
	return sum
}

// AddAmounts adds two amounts, each 0 or more. If the sum overflows, it is math.MaxInt64.
func AddAmounts(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Amount returns what the pod holds of the unit. A nil unit has no allocations.
func (u *LedgerUnit) Amount(uid types.UID) int64 {
	if u != nil {
		for _, c := range u.Allocations {
			if c.Pod == uid {
				return c.Amount
			}
		}
	}
	return 0
}

// Without returns a copy of the ledger without the allocations of the pods for which leaving is
// true. It returns the receiver itself if no pod leaves.
func (l *Ledger) Without(leaving func(types.UID) bool) *Ledger {
	if l == nil || !slices.ContainsFunc(l.Pods, func(p LedgerPod) bool { return leaving(p.UID) }) {
		return l
	}
	next := *l
	next.Pods = slices.DeleteFunc(slices.Clone(l.Pods), func(p LedgerPod) bool { return leaving(p.UID) })
	next.Units = slices.Clone(l.Units)
	for i := range next.Units {
		next.Units[i].Allocations = slices.DeleteFunc(slices.Clone(next.Units[i].Allocations), func(c LedgerAllocation) bool { return leaving(c.Pod) })
	}
	return &next
}
