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

// Ledgers stores claims. All replicas see the same claims, which survive the end of any replica.
type Ledgers interface {
	// Claim makes sure that the ledger holds a claim of the pod for the node, and returns it: the
	// existing one, or else the one that choose returns. Claim calls choose with the current
	// ledger, and again if another writer was faster. If choose returns an error, Claim returns it
	// and claims nothing. If the ledger already holds a claim of the pod, choose decides whether it
	// can be used; if it cannot, Claim returns it together with the error. After any other error, a
	// claim may have been written, but no caller may rely on it.
	Claim(ctx context.Context, key snapshot.LedgerKey, pod *corev1.Pod, node string, choose Choose) (snapshot.LedgerPod, error)
	// Release removes a claim, unless another caller relies on it. Call it only when it is certain
	// that the caller that made the claim does not bind the pod.
	Release(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error
	// Revoke removes a claim, unless another caller has relied on it since Claim returned it. Call
	// it only when the pod was changed after that, which invalidates all Bindings sent before, and
	// is not bound.
	Revoke(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error
}

// Choose chooses what to claim from a ledger, or checks the existing claim of the pod, made at the
// given time. It is pure.
type Choose = func(l *snapshot.Ledger, at time.Time) (policy.Claim, error)

// Claim is what one policy allocates to a pod on a node from one ledger. It is immutable.
type Claim struct {
	Policy string
	Key    snapshot.LedgerKey

	reserver policy.Reserver
	request  policy.ReserveRequest // without the ledger
}

// HeldClaim is a claim that the ledger holds.
type HeldClaim struct {
	Claim
	Pod snapshot.LedgerPod
	// Amounts is what the pod holds of units of the ledger.
	Amounts []policy.Amount
	// After are pods that should be bound first; see [policy.Claim].
	After []types.UID
}

// Reservation holds the claims of a pod. It is a value: With returns another one.
type Reservation struct {
	Held []HeldClaim
	// Annotations are those of all claims; nil if there are none.
	Annotations map[string]string
}

// UnusableClaimError is the error of a claim if the pod holds one of an earlier attempt that its
// policy cannot use any more.
type UnusableClaimError struct {
	Reason string // why the policy cannot use it
	Claim  HeldClaim
}

func (e *UnusableClaimError) Error() string {
	return "the existing claim of the pod cannot be used any more: " + e.Reason
}

// Reserves reports whether a policy of the profile allocates resources, so that claims need
// ledgers.
func (e *Engine) Reserves() bool { return e.reserves }

// Claims returns what the policies allocate to the pod on the node, in the order of the profile.
// Nothing is written before [Claim.Make]. Policies get view as ReserveRequest.View; it may be older
// than the ledgers.
func (e *Engine) Claims(view *snapshot.View, pod *corev1.Pod, node *snapshot.Node) ([]Claim, error) {
	var claims []Claim
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
			for _, c := range claims {
				if c.Key == key { // Ledgers.Claim would return it as this policy's own
					return nil, &PolicyError{Policy: m.Name, Err: fmt.Errorf("it allocates %s, and so does policy %s", key.Resource, c.Policy)}
				}
			}
			claims = append(claims, Claim{m.Name, key, reserver, policy.ReserveRequest{Pod: pod, Node: node, View: view}})
		}
	}
	return claims, nil
}

// Make makes the claim in the ledger; ledgers may be nil if no policy reserves. The error wraps an
// *[UnusableClaimError] if an existing claim of the pod must be revoked first.
func (c Claim) Make(ctx context.Context, ledgers Ledgers) (HeldClaim, error) {
	if ledgers == nil {
		return HeldClaim{}, &PolicyError{Policy: c.Policy, Err: errors.New("it allocates resources, but there are no ledgers for its claims")}
	}
	held, node := HeldClaim{Claim: c}, c.request.Node.Name
	var err error
	held.Pod, err = ledgers.Claim(ctx, c.Key, c.request.Pod, node, func(l *snapshot.Ledger, at time.Time) (policy.Claim, error) {
		claim, err := c.choose(l, at)
		held.Amounts, held.After = claim.Amounts, claim.After
		return claim, err
	})
	if unusable := (*UnusableClaimError)(nil); errors.As(err, &unusable) {
		// Not in place: the outcome of the operation has the error, too.
		err = &PolicyError{Policy: c.Policy, Err: &UnusableClaimError{unusable.Reason, held}}
	}
	if err != nil {
		return HeldClaim{}, fmt.Errorf("node %s: %w", node, err)
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

// choose returns what to claim from the ledger. If the pod holds a claim already, made at that
// time, choose checks it, and the result says only what the pod holds, and which pods come before
// it.
func (c Claim) choose(l *snapshot.Ledger, at time.Time) (claim policy.Claim, err error) {
	ask := c.request
	ask.Ledger, ask.At = l, at
	exists := l.Pod(ask.Pod.UID) != nil
	if exists {
		claim.Amounts = amounts(l, ask.Pod.UID)
	}
	err = guard(c.Policy, func() error {
		var verdict policy.Verdict
		if validator, ok := c.reserver.(policy.ClaimValidator); exists && ok {
			claim.After, verdict = validator.ValidateClaim(ask)
		} else if !exists {
			claim, verdict = c.reserver.Reserve(ask)
		}
		switch {
		case verdict.Fits():
			return nil
		case exists:
			return &UnusableClaimError{Reason: verdict.Reason.Text}
		}
		return errors.New(verdict.Reason.Text)
	})
	return claim, err
}

// With returns the reservation with one more claim. The error says that two policies set an
// annotation to different values; the reservation has the claim nevertheless, so that it can be
// released.
func (r Reservation) With(held HeldClaim) (Reservation, error) {
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

// Record returns the claims for the record of a decision.
func (r Reservation) Record() (all []decision.Claim) {
	for _, held := range r.Held {
		all = appendClaims(all, held.Key.Resource, held.Amounts)
	}
	return all
}

func appendClaims(to []decision.Claim, resource string, amounts []policy.Amount) []decision.Claim {
	for _, a := range amounts {
		to = append(to, decision.Claim{Resource: resource, Unit: a.Unit, Amount: a.Amount})
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

// Undo removes the claim, by ledgers.Revoke or else by ledgers.Release: see there when it may.
func (h HeldClaim) Undo(ctx context.Context, ledgers Ledgers, revoke bool) error {
	doing, undo := "releasing", ledgers.Release
	if revoke {
		doing, undo = "revoking", ledgers.Revoke
	}
	if err := undo(ctx, h.Key, h.Pod); err != nil {
		return &PolicyError{Policy: h.Policy, Err: fmt.Errorf("%s: %w", doing, err)}
	}
	return nil
}
