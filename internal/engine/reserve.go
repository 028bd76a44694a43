package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Ledgers stores allocations. All replicas see the same allocations, which survive the end of any
// replica.
type Ledgers interface {
	// Allocate makes sure that the ledger holds an allocation of the pod for the node, and returns
	// it: the existing one, or else the one that choose returns. Allocate calls choose with the
	// current ledger, and again if another writer was faster. If choose returns an error, Allocate
	// returns it and allocates nothing. If the ledger already holds an allocation of the pod,
	// choose decides whether it can be used; if it cannot, Allocate returns it together with the
	// error. After any other error, an allocation may have been written, but no caller may rely on
	// it.
	Allocate(ctx context.Context, key snapshot.LedgerKey, pod *corev1.Pod, node string, choose Choose) (snapshot.LedgerPod, error)
	// Release removes an allocation, unless another caller relies on it. Call it only when it is
	// certain that the caller that made the allocation does not bind the pod.
	Release(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error
	// Revoke removes an allocation, unless another caller has relied on it since Allocate returned
	// it. Call it only when the pod was changed after that, which invalidates all Bindings sent
	// before, and is not bound.
	Revoke(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error
}

// Choose chooses what to allocate from a ledger, or checks the existing allocation of the pod, made
// at the given time. It is pure.
type Choose = func(l *snapshot.Ledger, at time.Time) (policy.Allocation, error)

// Allocation is what one policy allocates to a pod on a node from one ledger. It is immutable.
type Allocation struct {
	Policy string
	Key    snapshot.LedgerKey

	reserver policy.Reserver
	request  policy.ReserveRequest // without the ledger
}

// HeldAllocation is an allocation that the ledger holds.
type HeldAllocation struct {
	Allocation
	Pod snapshot.LedgerPod
	// Amounts is what the pod holds of units of the ledger.
	Amounts []policy.Amount
	// After are pods that should be bound first; see [policy.Allocation].
	After []types.UID
}

// Reservation holds the allocations of a pod. It is a value: With returns another one.
type Reservation struct {
	Held []HeldAllocation
	// Annotations are those of all allocations; nil if there are none.
	Annotations map[string]string
}

// UnusableAllocationError is the error of an allocation if the pod holds one of an earlier attempt
// that its policy cannot use any more.
type UnusableAllocationError struct {
	Reason     string // why the policy cannot use it
	Allocation HeldAllocation
}

func (e *UnusableAllocationError) Error() string {
	return "the existing allocation of the pod cannot be used any more: " + e.Reason
}

// Reserves reports whether a policy of the profile allocates resources, so that allocations need
// ledgers.
func (e *Engine) Reserves() bool { return e.reserves }

// Allocations returns what the policies allocate to the pod on the node, in the order of the
// profile. Nothing is written before [Allocation.Make]. Policies get view as ReserveRequest.View;
// it may be older than the ledgers.
func (e *Engine) Allocations(view *snapshot.View, pod *corev1.Pod, node *snapshot.Node) ([]Allocation, error) {
	var allocations []Allocation
	for _, m := range e.members {
		reserver, ok := m.Policy.(policy.Reserver)
		if !ok {
			continue
		}
		var keys []snapshot.LedgerKey
		err := guard(m.Name, func() (err error) {
			keys, err = reserver.Ledgers(pod, node)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			for _, c := range allocations {
				if c.Key == key { // Ledgers.Allocate would return it as this policy's own
					return nil, &PolicyError{Policy: m.Name, Err: fmt.Errorf("it allocates %s, and so does policy %s", key.Resource, c.Policy)}
				}
			}
			allocations = append(allocations, Allocation{m.Name, key, reserver, policy.ReserveRequest{Pod: pod, Node: node, View: view}})
		}
	}
	return allocations, nil
}

// Make makes the allocation in the ledger; ledgers may be nil if no policy reserves. The error
// wraps an *[UnusableAllocationError] if an existing allocation of the pod must be revoked first.
func (c Allocation) Make(ctx context.Context, ledgers Ledgers) (HeldAllocation, error) {
	if ledgers == nil {
		return HeldAllocation{}, &PolicyError{Policy: c.Policy, Err: errors.New("it allocates resources, but there are no ledgers for its allocations")}
	}
	held, node := HeldAllocation{Allocation: c}, c.request.Node.Name
	var err error
	held.Pod, err = ledgers.Allocate(ctx, c.Key, c.request.Pod, node, func(l *snapshot.Ledger, at time.Time) (policy.Allocation, error) {
		allocation, err := c.choose(l, at)
		held.Amounts, held.After = allocation.Amounts, allocation.After
		return allocation, err
	})
	if unusable := (*UnusableAllocationError)(nil); errors.As(err, &unusable) {
		// Not in place: the outcome of the operation has the error, too.
		err = &PolicyError{Policy: c.Policy, Err: &UnusableAllocationError{unusable.Reason, held}}
	}
	if err != nil {
		return HeldAllocation{}, fmt.Errorf("node %s: %w", node, err)
	}
	return held, nil
}

// amounts returns what the pod holds of the units of the ledger.
func amounts(l *snapshot.Ledger, uid types.UID) []policy.Amount {
	var all []policy.Amount
	for i := range l.Units {
		if amount := l.Units[i].Amount(uid); amount > 0 {
			all = append(all, policy.Amount{Unit: l.Units[i].Name, Amount: amount})
		}
	}
	return all
}

// choose returns what to allocate from the ledger. If the pod holds an allocation already, made at
// that time, choose checks it, and the result says only what the pod holds, and which pods come
// before it.
func (c Allocation) choose(l *snapshot.Ledger, at time.Time) (allocation policy.Allocation, err error) {
	ask := c.request
	ask.Ledger, ask.At = l, at
	exists := l.Pod(ask.Pod.UID) != nil
	if exists {
		allocation.Amounts = amounts(l, ask.Pod.UID)
	}
	err = guard(c.Policy, func() error {
		var verdict policy.Verdict
		if validator, ok := c.reserver.(policy.AllocationValidator); exists && ok {
			allocation.After, verdict = validator.ValidateAllocation(ask)
		} else if !exists {
			allocation, verdict = c.reserver.Reserve(ask)
		}
		switch {
		case verdict.Fits():
			return nil
		case exists:
			return &UnusableAllocationError{Reason: verdict.Reason.Text}
		}
		return errors.New(verdict.Reason.Text)
	})
	return allocation, err
}

// With returns the reservation with one more allocation. The error says that two policies set an
// annotation to different values; the reservation has the allocation nevertheless, so that it can
// be released.
func (r Reservation) With(held HeldAllocation) (Reservation, error) {
	next := Reservation{Held: append(slices.Clip(r.Held), held), Annotations: maps.Clone(r.Annotations)}
	for _, key := range slices.Sorted(maps.Keys(held.Pod.Annotations)) {
		for _, other := range r.Held {
			if value, taken := other.Pod.Annotations[key]; taken && value != held.Pod.Annotations[key] {
				return next, &PolicyError{
					Policy: held.Policy,
					Err:    fmt.Errorf("annotation %q is already set to another value by policy %s", key, other.Policy),
				}
			}
		}
	}
	if next.Annotations == nil && len(held.Pod.Annotations) > 0 {
		next.Annotations = map[string]string{}
	}
	maps.Copy(next.Annotations, held.Pod.Annotations)
	return next, nil
}

// Record returns the allocations for the record of a decision.
func (r Reservation) Record() (all []decision.Allocation) {
	for _, held := range r.Held {
		all = appendAllocations(all, held.Key.Resource, held.Amounts)
	}
	return all
}

func appendAllocations(to []decision.Allocation, resource string, amounts []policy.Amount) []decision.Allocation {
	for _, a := range amounts {
		to = append(to, decision.Allocation{Resource: resource, Unit: a.Unit, Amount: a.Amount})
	}
	return to
}

// After are the pods that should be bound first.
func (r Reservation) After() []types.UID {
	var after []types.UID
	for _, held := range r.Held {
		after = append(after, held.After...)
	}
	return after
}

// Undo removes the allocation, by ledgers.Revoke or else by ledgers.Release: see there when it may.
func (h HeldAllocation) Undo(ctx context.Context, ledgers Ledgers, revoke bool) error {
	doing, undo := "releasing", ledgers.Release
	if revoke {
		doing, undo = "revoking", ledgers.Revoke
	}
	if err := undo(ctx, h.Key, h.Pod); err != nil {
		return &PolicyError{Policy: h.Policy, Err: fmt.Errorf("%s: %w", doing, err)}
	}
	return nil
}
