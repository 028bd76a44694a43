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

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// rollBackTime bounds the releases after a Reserve that failed, which go on when
// the request has ended.
const rollBackTime = 5 * time.Second

// Reservation is what a pod was given by all policies that hand something out.
type Reservation struct {
	// Annotations are those of all claims. Nil when there are none.
	Annotations map[string]string

	engine *Engine
	pod    *corev1.Pod
	node   *snapshot.Node
	claims []memberClaim
}

type memberClaim struct {
	member int
	claim  policy.Claim
}

// Reserve claims for the pod, in the order of the profile, what every Reserver in
// it hands out on the node. It is the engine's one method that does I/O. If one
// of them cannot, or the node has no longer what the pod needs, what was claimed
// before is released again, the last first, also when ctx has ended; the error
// says why, and what could not be released. An error that is a *PolicyError
// leaves open whether that policy claimed something.
func (e *Engine) Reserve(ctx context.Context, pod *corev1.Pod, node *snapshot.Node) (*Reservation, error) {
	r := &Reservation{engine: e, pod: pod, node: node}
	for i, m := range e.members {
		reserver, ok := m.Policy.(policy.Reserver)
		if !ok {
			continue
		}
		claim, verdict, err := reserve(ctx, m.Name, reserver, pod, node)
		if err == nil && !verdict.Fits() {
			err = fmt.Errorf("node %s: %s (policy %s)", node.Name, verdict.Reason.Text, m.Name)
		}
		if err == nil {
			err = r.add(i, claim)
		}
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollBackTime)
			defer cancel()
			return nil, errors.Join(err, r.Release(ctx))
		}
	}
	return r, nil
}

// add keeps the claim, and refuses annotations two policies disagree about.
func (r *Reservation) add(member int, claim policy.Claim) error {
	earlier := r.claims
	r.claims = append(r.claims, memberClaim{member, claim})
	for _, key := range slices.Sorted(maps.Keys(claim.Annotations)) {
		for _, other := range earlier {
			if value, taken := other.claim.Annotations[key]; taken && value != claim.Annotations[key] {
				return &PolicyError{
					Policy: r.engine.members[member].Name,
					Err:    fmt.Errorf("annotation %q is written by policy %s too, with another value", key, r.engine.members[other.member].Name),
				}
			}
		}
	}
	if r.Annotations == nil && len(claim.Annotations) > 0 {
		r.Annotations = map[string]string{}
	}
	maps.Copy(r.Annotations, claim.Annotations)
	return nil
}

// Release gives everything back, the last claim first, and goes on when one
// cannot be released. Call it only when the pod is certain not to be bound to the
// node.
func (r *Reservation) Release(ctx context.Context) error {
	var errs []error
	for _, c := range slices.Backward(r.claims) {
		m := r.engine.members[c.member]
		if err := release(ctx, m.Name, m.Policy.(policy.Reserver), r.pod, r.node, c.claim); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func reserve(ctx context.Context, name string, r policy.Reserver, pod *corev1.Pod, node *snapshot.Node) (claim policy.Claim, v policy.Verdict, err error) {
	defer recovered(name, &err)
	claim, v, err = r.Reserve(ctx, pod, node)
	if err != nil {
		err = &PolicyError{Policy: name, Err: err}
	}
	return claim, v, err
}

func release(ctx context.Context, name string, r policy.Reserver, pod *corev1.Pod, node *snapshot.Node, claim policy.Claim) (err error) {
	defer recovered(name, &err)
	if err := r.Release(ctx, pod, node, claim); err != nil {
		return &PolicyError{Policy: name, Err: fmt.Errorf("releasing: %w", err)}
	}
	return nil
}

func recovered(name string, err *error) {
	if p := recover(); p != nil {
		*err = &PolicyError{Policy: name, Err: fmt.Errorf("panic: %v", p), Stack: debug.Stack()}
	}
}
