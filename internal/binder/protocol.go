package binder

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
)

// bindAttempts is how often a pod that changes meanwhile is tried to be bound.
const bindAttempts = 4

// protocol binds one pod with its claims, as pure steps: begin and step return what to do next, and the caller of step passes what came of it.
// A protocol is a value that contains no clock, client or goroutine: the process may be stopped for any time, or killed, between two steps.
//
//	           what went wrong: release … ─▶ done, or if the pod has changed: read ─▶ begin again
//	             ▲          ▲           ▲
//	begin ─▶ claim … ─▶ await ─▶ bind ─▶ done
//	             │                 │ the outcome is unknown
//	             │                 ▼
//	             │               touch ─▶ bound here: done; bound elsewhere: release … ─▶ done; not bound: revoke … ─▶ done
//	             ▼ the pod holds a claim that cannot be used any more
//	           release … ─▶ touch ─▶ revoke ─▶ begin again
//
// Claims that no bind attempt relies on any more are released after a while, by any replica. Therefore the pod is changed ("touch") before
// a claim is removed that an earlier Binding may rely on, and the Binding of a pod with claims has the resourceVersion that was read before
// the claims were made: either the Binding comes first and the claims stay, or the API server rejects the Binding, and the protocol
// begins again.
type protocol struct {
	engine  *engine.Engine
	target  Target
	pod     *corev1.Pod // as it was when the attempt began; its namespace, name and UID stay the same
	touched *corev1.Pod // the pod after touch; nil: gone
	attempt int
	doing   action
	claims  []engine.Claim     // those still to be made
	held    engine.Reservation // those made
	cause   error              // why this attempt does not bind the pod; nil while it may
	undo    []engine.HeldClaim // those still to be released or revoked, the last one first
	failed  error              // what came of these, if not all could be removed
}

// action is what to do next.
type action int

const (
	done    action = iota // the protocol has ended, with task.err
	claim                 // make task.claim
	await                 // wait for the pods task.after to be bound
	bind                  // send task.binding
	read                  // read the pod from the API server
	touch                 // change the pod, so that the API server rejects Bindings sent before if they have claims
	release               // release task.held
	revoke                // revoke task.held
)

// task is an action with what it needs.
type task struct {
	action
	claim   engine.Claim
	held    engine.HeldClaim
	after   []types.UID
	binding Binding
	err     error
}

// result is what came of a task.
type result struct {
	err  error
	held engine.HeldClaim // of claim
	pod  *corev1.Pod      // of read and touch; nil: gone
}

// begin begins to bind the pod to the target.
func begin(e *engine.Engine, target Target, pod *corev1.Pod) (protocol, task) {
	return protocol{engine: e, target: target, pod: pod}.try(pod)
}

// try begins an attempt, with the pod as it is now; nil: gone.
func (p protocol) try(pod *corev1.Pod) (protocol, task) {
	bound, err := AlreadyBound(p.pod.Namespace, p.pod.Name, p.pod.UID, p.target.Node.Name, pod)
	if bound || err != nil {
		return p.end(err)
	}
	claims, err := p.engine.Claims(p.target.View, pod, p.target.Node)
	if err != nil {
		return p.end(err)
	}
	return protocol{engine: p.engine, target: p.target, pod: pod, attempt: p.attempt + 1, claims: claims}.claimNext()
}

// step continues with what came of the task that the last step returned.
func (p protocol) step(r result) (protocol, task) {
	switch p.doing {
	case claim:
		if r.err != nil {
			return p.giveUp(r.err)
		}
		var err error
		if p.held, err = p.held.With(r.held); err != nil {
			return p.giveUp(err)
		}
		p.claims = p.claims[1:]
		return p.claimNext()
	case await:
		if r.err != nil {
			return p.giveUp(r.err)
		}
		return p.bind()
	case bind:
		switch {
		case r.err == nil:
			return p.end(nil)
		case errors.Is(r.err, ErrOutcomeUnknown) && len(p.held.Held) > 0:
			p.cause = r.err
			return p.do(task{action: touch})
		}
		return p.giveUp(r.err)
	case read:
		if r.err != nil {
			return p.end(r.err)
		}
		return p.try(r.pod)
	case touch:
		return p.withdraw(r)
	case release, revoke:
		p.failed = errors.Join(p.failed, r.err)
		return p.undoNext(p.doing)
	}
	panic("binder: a step after the end")
}

func (p protocol) do(t task) (protocol, task) {
	p.doing = t.action
	return p, t
}

func (p protocol) end(err error) (protocol, task) { return p.do(task{err: err}) }

// claimNext makes the next claim. If there is none, the pod can be bound.
func (p protocol) claimNext() (protocol, task) {
	if len(p.claims) > 0 {
		return p.do(task{action: claim, claim: p.claims[0]})
	}
	if after := p.held.After(); len(after) > 0 {
		return p.do(task{action: await, after: after})
	}
	return p.bind()
}

func (p protocol) bind() (protocol, task) {
	b := Binding{Namespace: p.pod.Namespace, Name: p.pod.Name, UID: p.pod.UID, Node: p.target.Node.Name, Annotations: p.held.Annotations}
	if len(p.held.Held) > 0 {
		b.ResourceVersion = p.pod.ResourceVersion
	}
	return p.do(task{action: bind, binding: b})
}

// giveUp releases the claims of this attempt, on which no Binding relies that may still have an effect.
func (p protocol) giveUp(cause error) (protocol, task) {
	p.cause, p.undo = cause, p.held.Held
	return p.undoNext(release)
}

// undoNext releases or revokes the next claim. If there is none, the attempt is over.
func (p protocol) undoNext(how action) (protocol, task) {
	if n := len(p.undo) - 1; n >= 0 {
		held := p.undo[n]
		p.undo = p.undo[:n]
		return p.do(task{action: how, held: held})
	}
	if how == revoke {
		return p.revoked()
	}
	p.cause, p.failed = errors.Join(p.cause, p.failed), nil
	switch {
	case p.attempt == bindAttempts:
	case errors.Is(p.cause, ErrPodChanged):
		return p.do(task{action: read})
	case p.unusable() != nil:
		return p.do(task{action: touch})
	}
	return p.end(p.cause)
}

// unusable returns the claim of an earlier attempt that cannot be used any more, nil if that is not the cause.
func (p protocol) unusable() *engine.UnusableClaimError {
	var unusable *engine.UnusableClaimError
	errors.As(p.cause, &unusable)
	return unusable
}

// withdraw continues after the pod was changed: if it is not bound, Bindings that were sent before have no effect any more.
func (p protocol) withdraw(r result) (protocol, task) {
	p.touched = r.pod
	unusable := p.unusable()
	bound := r.pod != nil && r.pod.Spec.NodeName != ""
	switch {
	case r.err != nil:
		return p.claimsStay(fmt.Errorf("changing pod %s/%s: %w", p.pod.Namespace, p.pod.Name, r.err))
	case bound && unusable != nil:
		return p.try(r.pod)
	case bound:
		here, err := AlreadyBound(p.pod.Namespace, p.pod.Name, p.pod.UID, p.target.Node.Name, r.pod)
		if here {
			return p.end(nil)
		}
		return p.giveUp(err)
	case unusable != nil:
		p.undo = []engine.HeldClaim{unusable.Claim}
	default:
		p.undo = p.held.Held
	}
	return p.undoNext(revoke)
}

// revoked continues after the claims were revoked.
func (p protocol) revoked() (protocol, task) {
	switch {
	case p.failed != nil:
		return p.claimsStay(p.failed)
	case p.unusable() != nil:
		return p.try(p.touched)
	}
	return p.end(fmt.Errorf("the Binding was withdrawn, and the claims of the pod were released: %w", p.cause))
}

// claimsStay ends with claims that could not be removed.
func (p protocol) claimsStay(err error) (protocol, task) {
	if unusable := p.unusable(); unusable != nil {
		return p.end(fmt.Errorf("node %s: %w: %w", p.target.Node.Name, unusable, err))
	}
	return p.end(fmt.Errorf("%w; its claims stay for now: %w", p.cause, err))
}
