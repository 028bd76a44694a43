package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Operation is one change of a ledger: it ensures that a pod has an allocation, or, if choose is
// nil, releases the allocation of the pod, if it still has the token.
type Operation struct {
	pod    snapshot.LedgerPod // without At and Annotations; of a release only UID and Token
	choose func(l *snapshot.Ledger, at time.Time) (policy.Allocation, error)
	// created is the creation time of the pod, by the API server's clock: no allocation of it is
	// earlier.
	created time.Time
	shared  bool // a release: also of an allocation that is shared
}

// AllocationFor returns the operation that ensures that the pod has an allocation for the node; see
// [Keeper.Allocate]. The token is the caller's alone.
func AllocationFor(pod *corev1.Pod, node, token string, choose func(l *snapshot.Ledger, at time.Time) (policy.Allocation, error)) Operation {
	entry := snapshot.LedgerPod{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: node, Token: token}
	return Operation{pod: entry, choose: choose, created: pod.CreationTimestamp.Time}
}

// ReleaseOf returns the operation that releases the allocation, or, if revoke is true, revokes it;
// see [Keeper.Release] and [Keeper.Revoke].
func ReleaseOf(held snapshot.LedgerPod, revoke bool) Operation {
	return Operation{pod: snapshot.LedgerPod{UID: held.UID, Token: held.Token}, shared: revoke}
}

// Outcome is the result of an operation.
type Outcome struct {
	Held    snapshot.LedgerPod // the allocation; also with err, if the pod holds one that cannot be used
	Err     error              // why nothing is allocated
	Failure error              // why nothing could be written, as opposed to what choose returned
}

// Allocate returns the ledger with an allocation of the pod, as a Keeper would write it at that
// time, for callers that do not keep ledgers in the API server. It is pure. If choose fails,
// Allocate returns its error, together with the existing allocation of the pod, if any. Any other
// error means that the ledger cannot hold what choose returned.
func Allocate(l snapshot.Ledger, pod snapshot.LedgerPod, choose func(l *snapshot.Ledger, at time.Time) (policy.Allocation, error), now time.Time) (snapshot.Ledger, snapshot.LedgerPod, error) {
	next, outcomes := apply(l, []Operation{{pod: pod, choose: choose}}, now)
	return next, outcomes[0].Held, outcomes[0].Err
}

// apply applies the operations in order, and returns the changed ledger. It is pure: its result
// depends on its arguments only. An operation that fails changes nothing, and the others continue.
//
// What holds afterwards, if it held before:
//   - The allocations of a unit are at most its capacity, unless its capacity became smaller. Then
//     nothing is added.
//   - A pod has at most one allocation of each unit. They were made together, and are released together.
//   - In the ledger of a node, each allocation has a later time than all before it, and than its pod.
//   - Units are ordered by name, the allocations of a unit by pod, and pods by when they made allocations.
func apply(l snapshot.Ledger, operations []Operation, now time.Time) (snapshot.Ledger, []Outcome) {
	next := clone(l)
	outcomes := make([]Outcome, len(operations))
	for i, o := range operations {
		if o.choose == nil {
			release(&next, o)
			continue
		}
		outcomes[i].Held, outcomes[i].Err = allocation(&next, o, now)
	}
	return next, outcomes
}

func release(l *snapshot.Ledger, o Operation) {
	if p := l.Pod(o.pod.UID); p != nil && p.Token == o.pod.Token && (o.shared || !p.Shared) {
		*l = clone(*l.Without(func(uid types.UID) bool { return uid == o.pod.UID }))
	}
}

func allocation(l *snapshot.Ledger, o Operation, now time.Time) (snapshot.LedgerPod, error) {
	if held := l.Pod(o.pod.UID); held != nil {
		if held.Token == o.pod.Token {
			return *held, nil // written by this operation, and the response was lost; no other attempt relies on it since
		}
		if _, err := o.choose(l, held.At); err != nil {
			return *held, err
		}
		// A pod's allocation of a pool is valid on any node.
		held.Token, held.Node, held.Shared = o.pod.Token, o.pod.Node, true // this attempt relies on it, too
		return *held, nil
	}
	base := clone(*l)
	at := timeOfAllocation(l, o.created, now)
	chosen, err := o.choose(&base, at)
	if err != nil {
		return snapshot.LedgerPod{}, err
	}
	if chosen.NotBefore.After(at) {
		at = chosen.NotBefore.UTC().Truncate(minStep).Add(minStep)
	}
	held := o.pod
	held.At, held.Annotations = at, maps.Clone(chosen.Annotations)
	if err := addAllocation(&base, held, chosen); err != nil {
		return snapshot.LedgerPod{}, err
	}
	*l = base
	return held, nil
}

// minStep is the minimum time between two allocations of a ledger.
const minStep = time.Microsecond

// maxAhead is by how much the latest allocation of a pool may be in the future. A later time is
// from a clock that was wrong once.
const maxAhead = time.Hour

// timeOfAllocation returns the time of a new allocation, which is later than all others.
// Allocations of a pool, which have no order, do not follow a clock that was wrong.
func timeOfAllocation(l *snapshot.Ledger, created, now time.Time) time.Time {
	at := now.UTC().Truncate(minStep)
	for _, earliest := range [...]time.Time{l.LastAt.Add(minStep), created.UTC()} {
		if at.Before(earliest) && (l.Node != "" || earliest.Sub(at) <= maxAhead) {
			at = earliest
		}
	}
	return at
}

// addAllocation adds an allocation to the ledger, or returns why it is invalid. After an error, l
// must not be used.
func addAllocation(l *snapshot.Ledger, held snapshot.LedgerPod, chosen policy.Allocation) error {
	setCapacity(l, chosen.Units)
	if len(chosen.Amounts) == 0 {
		return fmt.Errorf("ledger %s: the allocation has no amounts", Name(l.Key()))
	}
	for _, a := range chosen.Amounts {
		u := l.Unit(a.Unit)
		switch {
		case u == nil:
			return fmt.Errorf("ledger %s: the allocation names unit %q, which does not exist", Name(l.Key()), a.Unit)
		case a.Amount < 1:
			return fmt.Errorf("ledger %s: an allocation of %d of unit %q: must be at least 1", Name(l.Key()), a.Amount, a.Unit)
		case u.Amount(held.UID) != 0:
			return fmt.Errorf("ledger %s: a second allocation of unit %q", Name(l.Key()), a.Unit)
		case a.Amount > math.MaxInt64-u.Used() || u.Used()+a.Amount > u.Capacity:
			return fmt.Errorf("ledger %s: an allocation of %d of unit %q: %d of %d are allocated already", Name(l.Key()), a.Amount, a.Unit, u.Used(), u.Capacity)
		}
		at, _ := slices.BinarySearchFunc(u.Allocations, held.UID, func(c snapshot.LedgerAllocation, uid types.UID) int { return cmp.Compare(c.Pod, uid) })
		u.Allocations = slices.Insert(u.Allocations, at, snapshot.LedgerAllocation{Pod: held.UID, Amount: a.Amount})
	}
	switch {
	case len(l.Units) > snapshot.MaxLedgerUnits:
		return fmt.Errorf("ledger %s: %d units, the limit of a ledger is %d", Name(l.Key()), len(l.Units), snapshot.MaxLedgerUnits)
	case len(l.Pods) >= snapshot.MaxLedgerPods:
		return fmt.Errorf("ledger %s: %d pods have allocations, the limit of a ledger", Name(l.Key()), snapshot.MaxLedgerPods)
	case len(held.Annotations) > snapshot.MaxAllocationAnnotations:
		return fmt.Errorf("ledger %s: an allocation with %d annotations, the limit is %d", Name(l.Key()), len(held.Annotations), snapshot.MaxAllocationAnnotations)
	}
	l.Pods, l.LastAt = append(l.Pods, held), held.At
	return nil
}

// setCapacity replaces the units of the ledger. A unit that no longer exists stays, with capacity
// 0, while it has allocations.
func setCapacity(l *snapshot.Ledger, units []policy.Capacity) {
	next := make([]snapshot.LedgerUnit, 0, len(units))
	for _, u := range units {
		unit := snapshot.LedgerUnit{Name: u.Unit, Capacity: max(0, u.Capacity)}
		if old := l.Unit(u.Unit); old != nil {
			unit.Allocations = old.Allocations
		}
		next = append(next, unit)
	}
	for _, old := range l.Units {
		if len(old.Allocations) > 0 && !slices.ContainsFunc(units, func(u policy.Capacity) bool { return u.Unit == old.Name }) {
			next = append(next, snapshot.LedgerUnit{Name: old.Name, Allocations: old.Allocations})
		}
	}
	slices.SortFunc(next, func(a, b snapshot.LedgerUnit) int { return cmp.Compare(a.Name, b.Name) })
	l.Units = next
}
