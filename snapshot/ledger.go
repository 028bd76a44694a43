package snapshot

import (
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The bounds of a ledger. The API server refuses more.
const (
	MaxLedgerUnits = 64
	MaxUnitClaims  = 128 // of one unit
	MaxLedgerPods  = 512
)

// LedgerKey says what a ledger is about.
type LedgerKey struct {
	// Resource is what is handed out, such as "aliyun.com/gpu-mem" or "licenses/matlab".
	Resource string
	// Node is the node whose units they are; "" for a pool of the whole cluster.
	Node string
}

// Ledger says what has been handed out of one countable thing, and to whom: the devices of one node, or a pool. It holds
// what Outboard has handed out, not what other tools have. A nil *Ledger is an empty one.
//
// In a View it is the present state as far as it is known; the API server's is the truth. It must not be written to.
type Ledger struct {
	Resource string `json:"resource"`
	Node     string `json:"node,omitempty"`
	// Units are all there are, in order of name.
	Units []LedgerUnit `json:"units,omitempty"`
	// Pods are those with claims, in order of At.
	Pods []LedgerPod `json:"pods,omitempty"`
	// LastAt is the latest At there has ever been.
	LastAt time.Time `json:"lastAt,omitzero"`
}

// LedgerUnit is one device, or one pool.
type LedgerUnit struct {
	Name string `json:"name"`
	// Capacity is what there is, in the resource's unit. Claims may exceed it when hardware has shrunk, or is gone (0).
	Capacity int64 `json:"capacity"`
	// Claims are in order of Pod; each pod has at most one.
	Claims []LedgerClaim `json:"claims,omitempty"`
}

// LedgerClaim is what one pod has of one unit.
type LedgerClaim struct {
	Pod    types.UID `json:"pod"`
	Amount int64     `json:"amount"` // 1 or more
}

// LedgerPod is a pod with claims.
type LedgerPod struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// Node is where the pod is, or is to be, bound.
	Node string `json:"node"`
	// At is when the claim was made. In one ledger no two claims have the same At, and later ones have later ones.
	At time.Time `json:"at"`
	// Token changes whenever somebody comes to rely on the claim, so that it is not taken back in the same moment.
	Token string `json:"token"`
	// Shared says that several attempts to bind the pod have relied on the claim, so that none of them alone may give it up.
	Shared bool `json:"shared,omitempty"`
	// Annotations are those the Binding must carry.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Key returns what the ledger is about.
func (l *Ledger) Key() LedgerKey { return LedgerKey{l.Resource, l.Node} }

// Pod returns the pod with the UID, or nil if it has no claim.
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

// Used is the sum of the claims. A nil unit has none.
func (u *LedgerUnit) Used() int64 {
	if u == nil {
		return 0
	}
	var sum int64
	for _, c := range u.Claims {
		sum = AddAmounts(sum, c.Amount)
	}
	return sum
}

// AddAmounts adds two amounts of something, which are 0 or more. A sum that cannot be counted
// is math.MaxInt64.
func AddAmounts(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Amount is what the pod has of the unit. A nil unit has none.
func (u *LedgerUnit) Amount(uid types.UID) int64 {
	if u != nil {
		for _, c := range u.Claims {
			if c.Pod == uid {
				return c.Amount
			}
		}
	}
	return 0
}

// Without returns the ledger as it would be without the claims of the pods for which leaving is true. The receiver is not
// changed. When no pod leaves, the receiver itself is returned.
func (l *Ledger) Without(leaving func(types.UID) bool) *Ledger {
	if l == nil || !slices.ContainsFunc(l.Pods, func(p LedgerPod) bool { return leaving(p.UID) }) {
		return l
	}
	next := *l
	next.Pods = slices.DeleteFunc(slices.Clone(l.Pods), func(p LedgerPod) bool { return leaving(p.UID) })
	next.Units = slices.Clone(l.Units)
	for i := range next.Units {
		next.Units[i].Claims = slices.DeleteFunc(slices.Clone(next.Units[i].Claims), func(c LedgerClaim) bool { return leaving(c.Pod) })
	}
	return &next
}
