// Package assumption has the states of a pod between the decision to bind it and the watch that
// shows it on its node.
package assumption

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// State is what is assumed about a pod between the decision to bind it to a node and the watch that
// shows it there. Views have it on its node, so that a decision about another pod counts it:
//
//	          Assume            the API server says so
//	waiting ─────────▶ decided ───────────────────────▶ bound
//	   ▲                 │  │                            │  │
//	   └─────────────────┘  │                            │  │ the watch does not show it for 15 s:
//	     forget             │                            │  │ as the API server says
//	                        ▼                            ▼  ▼
//	         the watch shows the pod on a node, or gone: as the watch says
//
// What the watch shows ends the assumption in every state: an Assume, forget or request that began
// before has no effect on the pod any more. A pod has one assumption, which all calls about it
// share: the pod is forgotten when the last Assume is. An Assume for another node moves the pod
// there: the caller has made sure that the earlier Binding has no effect.
//
// An assumption is a value, and its methods are pure: they return the next one, and what Views show
// of the pod from then on. The zero value is a pod that waits, and about which nobody decides.
type State struct {
	Pod   *corev1.Pod // as it counts on the node; nil: it waits
	Node  string      // "" if Pod is nil
	Bound bool        // the API server has said that the pod is bound
	Since time.Time   // when that was last confirmed
	calls int         // the calls of Assume that are not forgotten
	// requests bind or read the pod and have no response yet. Begun is the number of the latest
	// one. What the API server responds to those up to overtaken has no effect any more: the watch
	// has shown the pod since, a later one has said that the pod is bound, or the pod is gone.
	requests, Begun, overtaken int
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

// Begin begins a request whose response may say that the pod is bound. Its number is Begun from
// then on. Begin must come before the request is sent: what the watch shows after it may be newer
// than the response, even if the response comes later.
func (a State) Begin() State {
	a.requests++
	a.Begun++
	return a
}

// Respond ends the request with that number: the pod is as it was bound or read, or nil. watched is
// the pod as the watch shows it.
func (a State) Respond(number int, pod, watched *corev1.Pod, now time.Time) (next State, e Effect) {
	if a.requests--; a.requests < 0 {
		panic("assumption: a request has two responses")
	}
	if number > a.overtaken && OnNode(pod) && !OnNode(watched) {
		a.overtaken = number
		a, e = a.bindTo(pod, now)
	}
	if a.requests == 0 {
		a.Begun, a.overtaken = 0, 0
	}
	return a, e
}

// bindTo records that the pod is bound as it is.
func (a State) bindTo(bound *corev1.Pod, now time.Time) (State, Effect) {
	a.Pod, a.Node, a.Bound, a.Since = bound, bound.Spec.NodeName, true, now
	return a, AsAssumed
}

// Finish records that the pod is bound where it was decided, as it was decided, unless a response
// has said how it is bound.
func (a State) Finish(now time.Time) (State, Effect) {
	if a.Pod == nil || a.Bound {
		return a, Unchanged
	}
	bound := *a.Pod // shallow: nothing that it shares changes
	bound.Spec.NodeName = a.Node
	return a.bindTo(&bound, now)
}

// Forget ends a call of Assume.
func (a State) Forget() (State, Effect) {
	if a.calls--; a.calls < 0 {
		panic("assumption: forget was called twice")
	}
	if a.calls > 0 || a.Bound {
		return a, Unchanged
	}
	return a.wait(a.overtaken), AsWatched
}

// Watch records that the watch shows the pod, or, if it is nil, that the pod is gone.
func (a State) Watch(watched *corev1.Pod) (State, Effect) {
	switch {
	case watched != nil && watched.Spec.NodeName == "" && a.Pod != nil:
		return a, Unchanged // as it was before the decision, or before it was bound
	case watched != nil && watched.Spec.NodeName == "":
		return a, AsWatched
	}
	return a.wait(a.Begun), AsWatched
}

// Confirm replaces the assumption that the pod is bound with its state in the API server; nil if
// the pod is gone. It has no effect if the assumption has changed meanwhile.
func (a State) Confirm(assumed, truth *corev1.Pod, now time.Time) (State, Effect) {
	switch {
	case a.Pod != assumed:
		return a, Unchanged
	case OnNode(truth):
		return a.bindTo(truth, now)
	case truth == nil || snapshot.Ended(truth):
		return a.wait(a.Begun), AsWatched // a response of before may say that the pod is bound
	}
	return a.wait(a.overtaken), AsWatched
}

// wait records that nothing is assumed about the pod, and that the requests up to overtaken have no
// effect any more.
func (a State) wait(overtaken int) State {
	return State{calls: a.calls, requests: a.requests, Begun: a.Begun, overtaken: overtaken}
}

// OnNode reports whether the pod, nil if it does not exist, is bound and has not ended.
func OnNode(pod *corev1.Pod) bool {
	return pod != nil && pod.Spec.NodeName != "" && !snapshot.Ended(pod)
}
