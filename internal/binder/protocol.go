package binder

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
)

// maxTries is how often a pod that changes meanwhile is tried to be bound.
const maxTries = 4

// Protocol binds one pod with its allocations, as pure steps: Begin and Step return what to do
// next, and the caller of Step passes what came of it. A protocol is a value that contains no
// clock, client or goroutine: the process may be stopped for any time, or killed, between two
// steps.
//
//	           what went wrong: release … ─▶ done, or if the pod has changed: read ─▶ begin again
//	             ▲          ▲           ▲
//	begin ─▶ allocation … ─▶ await ─▶ bind ─▶ done
//	             │                 │ the outcome is unknown
//	             │                 ▼
//	             │               touch ─▶ bound here: done; bound elsewhere: release … ─▶ done; not bound: revoke … ─▶ done
//	             ▼ the pod holds an allocation that cannot be used any more
//	           release … ─▶ touch ─▶ revoke ─▶ begin again
//
// Allocations that no bind call relies on any more are released after a while, by any replica.
// Therefore the pod is changed ("touch") before an allocation is removed that an earlier Binding
// may rely on, and the Binding of a pod with allocations has the resourceVersion that was read
// before the allocations were made: either the Binding comes first and the allocations stay, or the
// API server rejects the Binding, and the protocol begins again.
type Protocol struct {
	engine      *engine.Engine
	target      Target
	pod         *corev1.Pod // as it was when the try began; its namespace, name and UID stay the same
	touched     *corev1.Pod // the pod after touch; nil: gone
	tries       int
	doing       Action
	allocations []engine.Allocation     // those still to be made
	held        engine.Reservation      // those made
	cause       error                   // why this try does not bind the pod; nil while it may
	undo        []engine.HeldAllocation // those still to be released or revoked, the last one first
	failed      error                   // what came of these, if not all could be removed
}

// Action is what to do next.
type Action int

const (
	Done       Action = iota // the protocol has ended, with Task.Err
	Allocation               // make Task.Allocation
	Await                    // wait for the pods Task.After to be bound
	Bind                     // send Task.Binding
	Read                     // read the pod from the API server
	Touch                    // change the pod, so that the API server rejects Bindings sent before if they have allocations
	Release                  // release Task.Held
	Revoke                   // revoke Task.Held
)

// Task is an action with what it needs.
type Task struct {
	Action
	Allocation engine.Allocation
	Held       engine.HeldAllocation
	After      []types.UID
	Binding    Binding
	Err        error
}

// Result is what came of a task.
type Result struct {
	Err  error
	Held engine.HeldAllocation // of Allocation
	Pod  *corev1.Pod           // of Read and Touch; nil: gone
}

// Begin begins to bind the pod to the target.
func Begin(e *engine.Engine, target Target, pod *corev1.Pod) (Protocol, Task) {
	return Protocol{engine: e, target: target, pod: pod}.try(pod)
}

// try begins a try, with the pod as it is now; nil: gone.
func (p Protocol) try(pod *corev1.Pod) (Protocol, Task) {
	bound, err := AlreadyBound(p.pod.Namespace, p.pod.Name, p.pod.UID, p.target.Node.Name, pod)
	if bound || err != nil {
		return p.end(err)
	}
	allocations, err := p.engine.Allocations(p.target.View, pod, p.target.Node)
	if err != nil {
		return p.end(err)
	}
	return Protocol{engine: p.engine, target: p.target, pod: pod, tries: p.tries + 1, allocations: allocations}.allocationNext()
}

// Step continues with what came of the task that the last step returned.
func (p Protocol) Step(r Result) (Protocol, Task) {
	switch p.doing {
	case Allocation:
		if r.Err != nil {
			return p.giveUp(r.Err)
		}
		var err error
		if p.held, err = p.held.With(r.Held); err != nil {
			return p.giveUp(err)
		}
		p.allocations = p.allocations[1:]
		return p.allocationNext()
	case Await:
		if r.Err != nil {
			return p.giveUp(r.Err)
		}
		return p.bind()
	case Bind:
		switch {
		case r.Err == nil:
			return p.end(nil)
		case errors.Is(r.Err, ErrOutcomeUnknown) && len(p.held.Held) > 0:
			p.cause = r.Err
			return p.do(Task{Action: Touch})
		}
		return p.giveUp(r.Err)
	case Read:
		if r.Err != nil {
			return p.end(r.Err)
		}
		return p.try(r.Pod)
	case Touch:
		return p.withdraw(r)
	case Release, Revoke:
		p.failed = errors.Join(p.failed, r.Err)
		return p.undoNext(p.doing)
	}
	panic("binder: a step after the end")
}

func (p Protocol) do(t Task) (Protocol, Task) {
	p.doing = t.Action
	return p, t
}

func (p Protocol) end(err error) (Protocol, Task) { return p.do(Task{Err: err}) }

// allocationNext makes the next allocation. If there is none, the pod can be bound.
func (p Protocol) allocationNext() (Protocol, Task) {
	if len(p.allocations) > 0 {
		return p.do(Task{Action: Allocation, Allocation: p.allocations[0]})
	}
	if after := p.held.After(); len(after) > 0 {
		return p.do(Task{Action: Await, After: after})
	}
	return p.bind()
}

func (p Protocol) bind() (Protocol, Task) {
	b := Binding{Namespace: p.pod.Namespace, Name: p.pod.Name, UID: p.pod.UID, Node: p.target.Node.Name, Annotations: p.held.Annotations}
	if len(p.held.Held) > 0 {
		b.ResourceVersion = p.pod.ResourceVersion
	}
	return p.do(Task{Action: Bind, Binding: b})
}

// giveUp releases the allocations of this try, on which no Binding relies that may still have an
// effect.
func (p Protocol) giveUp(cause error) (Protocol, Task) {
	p.cause, p.undo = cause, p.held.Held
	return p.undoNext(Release)
}

// undoNext releases or revokes the next allocation. If there is none, the try is over.
func (p Protocol) undoNext(how Action) (Protocol, Task) {
	if n := len(p.undo) - 1; n >= 0 {
		held := p.undo[n]
		p.undo = p.undo[:n]
		return p.do(Task{Action: how, Held: held})
	}
	if how == Revoke {
		return p.revoked()
	}
	p.cause, p.failed = errors.Join(p.cause, p.failed), nil
	switch {
	case p.tries == maxTries:
	case errors.Is(p.cause, ErrPodChanged):
		return p.do(Task{Action: Read})
	case p.unusable() != nil:
		return p.do(Task{Action: Touch})
	}
	return p.end(p.cause)
}

// unusable returns the allocation of an earlier try that cannot be used any more, nil if that is
// not the cause.
func (p Protocol) unusable() *engine.UnusableAllocationError {
	var unusable *engine.UnusableAllocationError
	errors.As(p.cause, &unusable)
	return unusable
}

// withdraw continues after the pod was changed: if it is not bound, Bindings that were sent before
// have no effect any more.
func (p Protocol) withdraw(r Result) (Protocol, Task) {
	p.touched = r.Pod
	unusable := p.unusable()
	bound := r.Pod != nil && r.Pod.Spec.NodeName != ""
	switch {
	case r.Err != nil:
		return p.allocationsStay(fmt.Errorf("changing pod %s/%s: %w", p.pod.Namespace, p.pod.Name, r.Err))
	case bound && unusable != nil:
		return p.try(r.Pod)
	case bound:
		here, err := AlreadyBound(p.pod.Namespace, p.pod.Name, p.pod.UID, p.target.Node.Name, r.Pod)
		if here {
			return p.end(nil)
		}
		return p.giveUp(err)
	case unusable != nil:
		p.undo = []engine.HeldAllocation{unusable.Allocation}
	default:
		p.undo = p.held.Held
	}
	return p.undoNext(Revoke)
}

// revoked continues after the allocations were revoked.
func (p Protocol) revoked() (Protocol, Task) {
	switch {
	case p.failed != nil:
		return p.allocationsStay(p.failed)
	case p.unusable() != nil:
		return p.try(p.touched)
	}
	return p.end(fmt.Errorf("the Binding was withdrawn, and the allocations of the pod were released: %w", p.cause))
}

// allocationsStay ends with allocations that could not be removed.
func (p Protocol) allocationsStay(err error) (Protocol, Task) {
	if unusable := p.unusable(); unusable != nil {
		return p.end(fmt.Errorf("node %s: %w: %w", p.target.Node.Name, unusable, err))
	}
	return p.end(fmt.Errorf("%w; its allocations stay for now: %w", p.cause, err))
}
