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

// rollBackTime bounds the releases after a Reserve that failed, which go on when
// the request has ended.
const rollBackTime = 5 * time.Second

// Ledgers is where claims are kept: all replicas see the same, whatever happens to
// one of them.
type Ledgers interface {
	// Claim makes sure that the ledger holds a claim of the pod for the node, and
	// returns it: one that it holds already, or else what choose chooses. choose is
	// given the ledger as it is, and is called again when somebody else was faster;
	// when it returns an error, that is what Claim returns, and nothing is claimed.
	// If the ledger holds a claim of the pod, choose says with its error whether it
	// can be used; one that cannot is returned beside the error. After any other
	// error nobody may rely on a claim that was made all the same.
	Claim(ctx context.Context, key snapshot.LedgerKey, pod *corev1.Pod, node string, choose Choose) (snapshot.LedgerPod, error)
	// Release takes back a claim unless somebody else has come to rely on it. It is
	// called only when the pod is certain not to be bound by who made the claim.
	Release(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error
	// Revoke takes back a claim unless somebody has come to rely on it since Claim
	// returned it. It is called only when the pod was changed after that, which
	// makes all Bindings that were sent before invalid, and is not bound.
	Revoke(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error
}

// Choose chooses what to claim from a ledger, or judges the claim that the pod holds
// there, which was made at that time. It is pure.
type Choose = func(l *snapshot.Ledger, at time.Time) (policy.Claim, error)

// Reservation is what a pod was given by all policies that hand something out.
type Reservation struct {
	// Annotations are those of all claims. Nil when there are none.
	Annotations map[string]string
	// After are pods that should be bound first: see [policy.Claim].
	After []types.UID

	ledgers Ledgers
	held    []heldClaim
}

type heldClaim struct {
	policy string
	key    snapshot.LedgerKey
	pod    snapshot.LedgerPod
}

// UnusableClaimError is the error of Reserve about a pod that holds a claim of an
// earlier attempt which its policy cannot use any more.
type UnusableClaimError struct {
	Policy string
	Reason string // why it cannot be used

	ledgers Ledgers
	claim   heldClaim
}

func (e *UnusableClaimError) Error() string {
	return "the claim that the pod holds cannot be used any more: " + e.Reason
}

// Revoke takes the claim back. See [Reservation.Revoke].
func (e *UnusableClaimError) Revoke(ctx context.Context) error {
	if err := e.ledgers.Revoke(ctx, e.claim.key, e.claim.pod); err != nil {
		return &PolicyError{Policy: e.Policy, Err: fmt.Errorf("revoking: %w", err)}
	}
	return nil
}

// Empty says that the pod needed nothing.
func (r *Reservation) Empty() bool { return len(r.held) == 0 }

// Reserves says whether a policy of the profile hands something out, so that
// Reserve needs ledgers.
func (e *Engine) Reserves() bool {
	return slices.ContainsFunc(e.members, func(m WeightedPolicy) bool {
		_, ok := m.Policy.(policy.Reserver)
		return ok
	})
}

// Reserve claims for the pod, in the order of the profile, what every Reserver in
// it hands out on the node. It is the engine's one method that does I/O, all of it
// through ledgers, which may be nil when no policy reserves. view is what policies
// see beside the ledger. If something cannot be
// claimed, what was claimed before is released again, the last first, also when ctx
// has ended; the error says why, and what could not be released. It holds an
// *[UnusableClaimError] if a claim that the pod holds has to be revoked first.
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

// claim claims what one policy hands out.
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
		return &PolicyError{Policy: name, Err: errors.New("it hands something out, and there are no ledgers to write that into")}
	}
	for _, key := range keys {
		for _, c := range r.held {
			if c.key == key { // it would be taken for this policy's own
				return &PolicyError{Policy: name, Err: fmt.Errorf("it hands out %s, and so does policy %s", key.Resource, c.policy)}
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

// validate asks whether the claim that the pod holds in ask.Ledger can be used, and which
// pods should be bound first.
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

// add keeps the claim, and refuses annotations two policies disagree about.
func (r *Reservation) add(c heldClaim) error {
	earlier := r.held
	r.held = append(r.held, c)
	for _, key := range slices.Sorted(maps.Keys(c.pod.Annotations)) {
		for _, other := range earlier {
			if value, taken := other.pod.Annotations[key]; taken && value != c.pod.Annotations[key] {
				return &PolicyError{
					Policy: c.policy,
					Err:    fmt.Errorf("annotation %q is written by policy %s too, with another value", key, other.policy),
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

// Release gives everything back, the last claim first, and goes on when one
// cannot be released. Call it only when the pod is certain not to be bound to the
// node by this reservation.
func (r *Reservation) Release(ctx context.Context) error {
	return r.giveBack(ctx, "releasing", Ledgers.Release)
}

// Revoke gives everything back as Release does, also what earlier attempts to bind
// the pod have relied on. Call it only when the pod was changed after Reserve, and is
// not bound: no Binding that names an earlier version of it can come into effect then.
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

// guard calls a policy's code. Its error or panic becomes a *PolicyError.
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
