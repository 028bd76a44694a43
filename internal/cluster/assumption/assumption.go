// Package assumption has the states of a pod between the decision to bind it and the watch that shows it on its node.
package assumption

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// State is what is assumed about a pod between the decision to bind it to a node and the watch that shows it there. Views have it on its
// node, so that a decision about another pod counts it:
//
//	          Assume              Bind succeeds
//	waiting ─────────▶ decided ─────────────────▶ bound
//	   ▲                 │  │                      │  │
//	   └─────────────────┘  │                      │  │ the watch does not show it for ConfirmAfter:
//	     forget             │                      │  │ as the API server says
//	                        ▼                      ▼  ▼
//	         the watch shows the pod on a node, or gone: as the watch says
//
// What the watch shows ends the assumption in every state: an Assume, forget or Bind that began before has no effect on the pod any more.
// A pod has one assumption, which all calls about it share: the pod is forgotten when the last of them ends. An Assume for another node
// moves the pod there: the caller has made sure that the earlier Binding has no effect.
//
// An assumption is a value, and its methods are pure: they return the next one, and what Views show of the pod from then on. The zero value
// is a pod that waits, and about which nobody decides.
type State struct {
	Pod   *corev1.Pod // as it counts on the node; nil: it waits
	Node  string      // "" if Pod is nil
	Bound bool        // the API server has accepted the Binding
	Since time.Time   // when that was last confirmed
	calls int         // the callers of Assume and Bind that have not ended
	// Begun numbers the calls of Bind: it is the number of the latest one. What the API server responds to those up to overtaken has no
	// effect any more: the watch has shown the pod since, a later Binding has succeeded, or the pod is gone.
	Begun, overtaken int
}

// Effect is what Views show of a pod after a step.
type Effect int

const (
	Unchanged Effect = iota
	AsAssumed        // on State.Node, as State.Pod
	AsWatched        // as the watch shows it; if it does not, nowhere
)

// Assume begins a call of Assume. watched is the pod as the watch shows it; nil if it does not.
func (a State) Assume(pod *corev1.Pod, node string, watched *corev1.Pod) (State, Effect) {
	a.calls++
	if a.Bound || a.Node == node || OnNode(watched) {
		return a, Unchanged
	}
	a.Pod, a.Node = pod, node
	return a, AsAssumed
}

// Begin begins a call of Bind, whose number is Begun from then on. It must come before the Binding is sent: what the watch shows after it may
// be newer than the Binding, even if the response comes later.
func (a State) Begin() State {
	a.calls++
	a.Begun++
	return a
}

// Respond records what came of the call of Bind with that number: the pod as it was bound, or nil. watched is the pod as the watch shows it.
func (a State) Respond(number int, bound, watched *corev1.Pod, now time.Time) (State, Effect) {
	if number <= a.overtaken || !OnNode(bound) || OnNode(watched) {
		return a, Unchanged
	}
	a.overtaken = number
	return a.bindTo(bound, now)
}

// bindTo records that the pod is bound as it is.
func (a State) bindTo(bound *corev1.Pod, now time.Time) (State, Effect) {
	a.Pod, a.Node, a.Bound, a.Since = bound, bound.Spec.NodeName, true, now
	return a, AsAssumed
}

// Finish records that the pod is bound where it was decided.
func (a State) Finish(now time.Time) (State, Effect) {
	if a.Pod == nil || a.Bound {
		return a, Unchanged
	}
	bound := *a.Pod // shallow: nothing that it shares changes
	bound.Spec.NodeName = a.Node
	return a.bindTo(&bound, now)
}

// End ends a call of Assume or Bind.
func (a State) End() (State, Effect) {
	if a.calls--; a.calls < 0 {
		panic("assumption: forget was called twice")
	}
	if a.calls > 0 || a.Bound {
		return a, Unchanged
	}
	return State{}, AsWatched
}

// Watch records that the watch shows the pod, or, if it is nil, that the pod is gone.
func (a State) Watch(watched *corev1.Pod) (State, Effect) {
	switch {
	case watched != nil && watched.Spec.NodeName == "" && a.Pod != nil:
		return a, Unchanged // as it was before the decision, or before it was bound
	case watched != nil && watched.Spec.NodeName == "":
		return a, AsWatched
	case a.calls == 0:
		return State{}, AsWatched
	}
	return State{calls: a.calls, Begun: a.Begun, overtaken: a.Begun}, AsWatched
}

// Confirm replaces the assumption that the pod is bound with its state in the API server; nil if the pod is gone. It has no effect if the
// assumption has changed meanwhile.
func (a State) Confirm(assumed, truth *corev1.Pod, now time.Time) (State, Effect) {
	switch {
	case a.Pod != assumed:
		return a, Unchanged
	case OnNode(truth):
		return a.bindTo(truth, now)
	case a.calls == 0:
		return State{}, AsWatched
	}
	a.Pod, a.Node, a.Bound = nil, "", false
	if truth == nil || snapshot.Ended(truth) {
		a.overtaken = a.Begun // a response of before may say that the pod is bound
	}
	return a, AsWatched
}

// OnNode reports whether the pod, nil if it does not exist, is bound and has not ended.
func OnNode(pod *corev1.Pod) bool {
	return pod != nil && pod.Spec.NodeName != "" && !snapshot.Ended(pod)
}
