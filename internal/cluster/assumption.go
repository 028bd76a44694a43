package cluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// assumption is a pod between the decision to bind it to a node and the watch that shows it there. Views have it on its node, so that a
// decision about another pod counts it:
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
type assumption struct {
	pod   *corev1.Pod // as it counts on the node; nil: it waits
	node  string      // "" if pod is nil
	bound bool        // the API server has accepted the Binding
	since time.Time   // when that was last confirmed
	calls int         // the callers of Assume and Bind that have not ended
	// begun numbers the calls of Bind. What the API server responds to those up to overtaken has no effect any more: the watch has shown
	// the pod since, or a later Binding has succeeded.
	begun, overtaken int
}

// effect is what Views show of a pod after a step.
type effect int

const (
	unchanged effect = iota
	asAssumed        // on assumption.node, as assumption.pod
	asWatched        // as the watch shows it; if it does not, nowhere
)

// assume begins a call of Assume. watched is the pod as the watch shows it; nil if it does not.
func (a assumption) assume(pod *corev1.Pod, node string, watched *corev1.Pod) (assumption, effect) {
	a.calls++
	if a.bound || a.node == node || onNode(watched) {
		return a, unchanged
	}
	a.pod, a.node = pod, node
	return a, asAssumed
}

// begin begins a call of Bind, whose number is begun from then on. It must come before the Binding is sent: what the watch shows after it may
// be newer than the Binding, even if the response comes later.
func (a assumption) begin() assumption {
	a.calls++
	a.begun++
	return a
}

// respond records what came of the call of Bind with that number: the pod as it was bound, or nil. watched is the pod as the watch shows it.
func (a assumption) respond(number int, bound, watched *corev1.Pod, now time.Time) (assumption, effect) {
	if number <= a.overtaken || !onNode(bound) || onNode(watched) {
		return a, unchanged
	}
	a.overtaken = number
	return a.bind(bound, now)
}

// bind records that the pod is bound as it is.
func (a assumption) bind(bound *corev1.Pod, now time.Time) (assumption, effect) {
	a.pod, a.node, a.bound, a.since = bound, bound.Spec.NodeName, true, now
	return a, asAssumed
}

// finish records that the pod is bound where it was decided.
func (a assumption) finish(now time.Time) (assumption, effect) {
	if a.pod == nil || a.bound {
		return a, unchanged
	}
	bound := *a.pod // shallow: nothing that it shares changes
	bound.Spec.NodeName = a.node
	return a.bind(&bound, now)
}

// end ends a call of Assume or Bind.
func (a assumption) end() (assumption, effect) {
	if a.calls--; a.calls < 0 {
		panic("cluster: forget was called twice")
	}
	if a.calls > 0 || a.bound {
		return a, unchanged
	}
	return assumption{}, asWatched
}

// watch records that the watch shows the pod, or, if it is nil, that the pod is gone.
func (a assumption) watch(watched *corev1.Pod) (assumption, effect) {
	switch {
	case watched != nil && watched.Spec.NodeName == "" && a.pod != nil:
		return a, unchanged // as it was before the decision, or before it was bound
	case watched != nil && watched.Spec.NodeName == "":
		return a, asWatched
	case a.calls == 0:
		return assumption{}, asWatched
	}
	return assumption{calls: a.calls, begun: a.begun, overtaken: a.begun}, asWatched
}

// resolve replaces the assumption that the pod is bound with its state in the API server; nil if the pod is gone. It has no effect if the
// assumption has changed meanwhile.
func (a assumption) resolve(assumed, truth *corev1.Pod, now time.Time) (assumption, effect) {
	switch {
	case a.pod != assumed:
		return a, unchanged
	case onNode(truth):
		return a.bind(truth, now)
	case a.calls == 0:
		return assumption{}, asWatched
	}
	a.pod, a.node, a.bound = nil, "", false
	return a, asWatched
}

func onNode(pod *corev1.Pod) bool {
	return pod != nil && pod.Spec.NodeName != "" && !snapshot.Ended(pod)
}
