package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// rollBackTime bounds the releases after a failed Reserve, which continue when the request has
// ended.
const rollBackTime = 5 * time.Second

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

// Reservation holds the claims that all policies made for a pod.
type Reservation struct {
	// Annotations are those of all claims; nil if there are none.
	Annotations map[string]string
	// After are pods that should be bound first; see [policy.Claim].
	After []types.UID

	ledgers Ledgers
	held    []heldClaim
}

type heldClaim struct {
	policy string
	key    snapshot.LedgerKey
	pod    snapshot.LedgerPod
}

// UnusableClaimError is the error of Reserve if the pod holds a claim of an earlier attempt that
// its policy cannot use any more.
type UnusableClaimError struct {
	Policy string
	Reason string // why the policy cannot use it

	ledgers Ledgers
	claim   heldClaim
}

func (e *UnusableClaimError) Error() string {
	return "the existing claim of the pod cannot be used any more: " + e.Reason
}

// Revoke removes the claim. See [Reservation.Revoke].
func (e *UnusableClaimError) Revoke(ctx context.Context) error {
	if err := e.ledgers.Revoke(ctx, e.claim.key, e.claim.pod); err != nil {
		return &PolicyError{Policy: e.Policy, Err: fmt.Errorf("revoking: %w", err)}
	}
	return nil
}

// Empty reports whether the pod has no claims.
func (r *Reservation) Empty() bool { return len(r.held) == 0 }

// Reserves reports whether a policy of the profile allocates resources, so that Reserve needs
// ledgers.
func (e *Engine) Reserves() bool {
	return slices.ContainsFunc(e.members, func(m WeightedPolicy) bool {
		_, ok := m.Policy.(policy.Reserver)
		return ok
	})
}

// Reserve claims resources on the node for the pod, for every Reserver in the order of the profile.
// It is the only method of the engine that does I/O, all of it through ledgers, which may be nil if
// no policy reserves. Policies get view as ReserveRequest.View;
// it may be older than the ledger. If a claim fails, Reserve releases the
// claims made before it, the last first, even if ctx has ended; the error contains the cause, and
// any failure to release. It wraps an *[UnusableClaimError] if an existing claim of the pod must be
// revoked first.
func (e *Engine) Reserve(ctx context.Context, ledgers Ledgers, view *snapshot.View, pod *corev1.Pod, node *snapshot.Node) (*Reservation, error) {
	r := &Reservation{ledgers: ledgers}
	for _, m := range e.members {
		reserver, ok := m.Policy.(policy.Reserver)
		if !ok {
			continue
		}
		if err := r.claim(ctx, m.Name, reserver, policy.ReserveRequest{Pod: pod, Node: node, View: view}); err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollBackTime)
			defer cancel()
			return nil, errors.Join(err, r.Release(ctx))
		}
	}
	return r, nil
}

// claim makes the claims of one policy.
func (r *Reservation) claim(ctx context.Context, name string, reserver policy.Reserver, ask policy.ReserveRequest) error {
	pod, node := ask.Pod, ask.Node
	var keys []snapshot.LedgerKey
	err := guard(name, func() (err error) {
		keys, err = reserver.Ledgers(pod, node)
		return err
	})
	if err != nil {
		return err
	}
	if len(keys) > 0 && r.ledgers == nil {
		return &PolicyError{Policy: name, Err: errors.New("it allocates resources, but there are no ledgers for its claims")}
	}
	for _, key := range keys {
		for _, c := range r.held {
			if c.key == key { // Claim would return it as this policy's own
				return &PolicyError{Policy: name, Err: fmt.Errorf("it allocates %s, and so does policy %s", key.Resource, c.policy)}
			}
		}
		var after []types.UID
		held, err := r.ledgers.Claim(ctx, key, pod, node.Name, func(l *snapshot.Ledger, at time.Time) (claim policy.Claim, err error) {
			ask.Ledger, ask.At = l, at
			if l.Pod(pod.UID) != nil {
				after, err = validate(name, reserver, ask)
				return policy.Claim{}, err
			}
			err = guard(name, func() error {
				var verdict policy.Verdict
				if claim, verdict = reserver.Reserve(ask); !verdict.Fits() {
					return errors.New(verdict.Reason.Text)
				}
				return nil
			})
			after = claim.After
			return claim, err
		})
		if unusable := (*UnusableClaimError)(nil); errors.As(err, &unusable) {
			unusable.ledgers, unusable.claim = r.ledgers, heldClaim{name, key, held}
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
		r.After = append(r.After, after...)
		if err := r.add(heldClaim{name, key, held}); err != nil {
			return err
		}
	}
	return nil
}

// validate checks whether the policy can use the existing claim of the pod in ask.Ledger, and
// returns the pods that should be bound first.
func validate(name string, reserver policy.Reserver, ask policy.ReserveRequest) (after []types.UID, err error) {
	validator, ok := reserver.(policy.ClaimValidator)
	if !ok {
		return nil, nil
	}
	err = guard(name, func() error {
		var verdict policy.Verdict
		if after, verdict = validator.ValidateClaim(ask); !verdict.Fits() {
			return &UnusableClaimError{Policy: name, Reason: verdict.Reason.Text}
		}
		return nil
	})
	return after, err
}

// add keeps the claim. It fails if two policies set an annotation to different values.
func (r *Reservation) add(c heldClaim) error {
	earlier := r.held
	r.held = append(r.held, c)
	for _, key := range slices.Sorted(maps.Keys(c.pod.Annotations)) {
		for _, other := range earlier {
			if value, taken := other.pod.Annotations[key]; taken && value != c.pod.Annotations[key] {
				return &PolicyError{
					Policy: c.policy,
					Err:    fmt.Errorf("annotation %q is already set to another value by policy %s", key, other.policy),
				}
			}
		}
	}
	if r.Annotations == nil && len(c.pod.Annotations) > 0 {
		r.Annotations = map[string]string{}
	}
	maps.Copy(r.Annotations, c.pod.Annotations)
	return nil
}

// Release removes all claims, the last first, and continues if one cannot be removed. Call it only
// when it is certain that the pod does not get bound to the node with this reservation.
func (r *Reservation) Release(ctx context.Context) error {
	return r.giveBack(ctx, "releasing", Ledgers.Release)
}

// Revoke removes all claims as Release does, including those that earlier attempts to bind the pod
// rely on. Call it only when the pod was changed after Reserve and is not bound: Bindings that name
// an earlier version of the pod fail from then on.
func (r *Reservation) Revoke(ctx context.Context) error {
	return r.giveBack(ctx, "revoking", Ledgers.Revoke)
}

func (r *Reservation) giveBack(ctx context.Context, doing string, give func(Ledgers, context.Context, snapshot.LedgerKey, snapshot.LedgerPod) error) error {
	var errs []error
	for _, c := range slices.Backward(r.held) {
		if err := give(r.ledgers, ctx, c.key, c.pod); err != nil {
			errs = append(errs, &PolicyError{Policy: c.policy, Err: fmt.Errorf("%s: %w", doing, err)})
		}
	}
	return errors.Join(errs...)
}

// guard calls code of a policy. Its error or panic becomes a *PolicyError.
func guard(name string, code func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PolicyError{Policy: name, Err: fmt.Errorf("panic: %v", p), Stack: debug.Stack()}
		}
	}()
	if err := code(); err != nil {
		return &PolicyError{Policy: name, Err: err}
	}
	return nil
}
