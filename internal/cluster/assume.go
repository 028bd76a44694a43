package cluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
type assumption struct {
	pod   *corev1.Pod // as it counts on the node; nil while Bind runs without Assume
	node  string      // "" if pod is nil
	bound bool        // the API server has accepted the Binding
	since time.Time   // when that was last confirmed
	calls int         // the callers of Assume and Bind that have not ended
	// begun numbers the calls of Bind, and boundBy is the one that has bound the pod.
	begun, boundBy int
}

// bindCall is a call of Bind.
type bindCall struct {
	*assumption
	number int
}

// Assume counts the pod on the node, with these annotations, in all Views from now on. Call forget once the pod is bound, or will not be
// bound by this caller: if Bind has not bound the pod, it waits for a node again, and a new View shows that. A pod that was already
// decided to be on the node keeps its annotations. If another node was decided, Assume moves the pod: resolve the earlier decision first.
func (c *Cluster) Assume(pod *corev1.Pod, node string) (forget func()) {
	return c.state.assume(pod, node)
}

// Assumed returns the node on which the pod counts because of Assume, before Bind has bound it; "" if there is none.
func (c *Cluster) Assumed(uid types.UID) (node string) { return c.state.assumedOn(uid) }

// ViewFor returns the latest View for the evaluation of the pod, which does not count against itself while it is decided to be on a node.
func (c *Cluster) ViewFor(uid types.UID) *snapshot.View {
	node := c.Assumed(uid) // before the View is read: a View without the pod is newer
	view := c.View()
	if node == "" {
		return view
	}
	return view.WithoutPod(node, uid)
}

// FinishBinding says that the pod is bound to the node for which it was assumed, by another client than this Cluster.
func (c *Cluster) FinishBinding(uid types.UID) { c.state.finishBinding(uid, time.Now()) }

const (
	// nominationTimeout is how long after the response to a preempt call the nomination may take to show. It usually takes milliseconds,
	// and seconds on a loaded control plane. A pod gets no nomination only if kube-scheduler has stopped, or another extender allows no
	// node.
	nominationTimeout = 30 * time.Second
	// maxExpected bounds the pods whose nominations are expected at one time.
	maxExpected = 1024
)

// Nominate counts the pod on the nodes, to one of which kube-scheduler is about to nominate it, in all Views from now on: see
// [snapshot.Builder.Nominate]. If the watch does not show the nomination for half a minute, the pod does not count any more.
func (c *Cluster) Nominate(pod *corev1.Pod, nodes []snapshot.NominatedNode) {
	c.state.nominate(pod.UID, nodes)
}

func (s *state) nominate(uid types.UID, nodes []snapshot.NominatedNode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := s.seen(uid)
	if pod == nil || s.expected >= maxExpected {
		return
	}
	s.expected++
	forget := s.builder.Nominate(pod, nodes)
	s.publishLocked()
	time.AfterFunc(nominationTimeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.expected--
		forget()
		s.publishLocked()
	})
}

func (s *state) assume(pod *corev1.Pod, node string) (forget func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.assumed[pod.UID]
	if a == nil {
		a = new(assumption)
		s.setAssumption(pod.UID, a)
	}
	a.calls++
	if !a.bound && a.node != node && !onNode(s.seen(pod.UID)) {
		s.setAssumed(a, pod, node)
		s.publishLocked()
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end(pod.UID, a)
	}
}

// end ends a call of Assume or Bind.
func (s *state) end(uid types.UID, a *assumption) {
	if a.calls--; a.calls < 0 {
		panic("cluster: forget was called twice")
	}
	if s.assumed[uid] == a && a.calls == 0 && !a.bound {
		s.drop(uid, a)
		s.publishLocked()
	}
}

// drop shows the pod as the watch does. The assumption stays for calls that have not ended.
func (s *state) drop(uid types.UID, a *assumption) {
	former := a.pod
	s.lookups.Lock()
	a.pod, a.node, a.bound = nil, "", false
	if a.calls == 0 {
		delete(s.assumed, uid)
	}
	s.lookups.Unlock()
	if seen := s.seen(uid); seen != nil {
		s.place(seen)
	} else if former != nil {
		s.displace(former)
	}
}

// setAssumption replaces the assumption about a pod. Nil: there is none.
func (s *state) setAssumption(uid types.UID, a *assumption) {
	s.lookups.Lock()
	defer s.lookups.Unlock()
	if a == nil {
		delete(s.assumed, uid)
	} else {
		s.assumed[uid] = a
	}
}

// assumedOn returns the node of a pod that is decided and not bound.
func (s *state) assumedOn(uid types.UID) string {
	s.lookups.RLock()
	defer s.lookups.RUnlock()
	if a := s.assumed[uid]; a != nil && !a.bound {
		return a.node
	}
	return ""
}

// beginBind must be called before the Binding is sent: what the watch shows from then on may be newer than the Binding, even if its
// response comes later.
func (s *state) beginBind(uid types.UID) bindCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.assumed[uid]
	if a == nil {
		a = new(assumption)
		s.setAssumption(uid, a)
	}
	a.calls++
	a.begun++
	return bindCall{a, a.begun}
}

// endBind ends a Bind. bound is the pod as it was bound, or nil if it was not. When endBind returns, the View has the pod on its node, unless
// a later Bind has bound it: two can only succeed if etcd was restored in between.
func (s *state) endBind(uid types.UID, call bindCall, bound *corev1.Pod, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := call.assumption
	switch {
	case s.assumed[uid] != a: // the watch was faster
	case a.bound && a.boundBy > call.number:
	case onNode(bound) && !onNode(s.seen(uid)):
		a.boundBy = call.number
		s.setBound(a, bound, now)
	}
	s.end(uid, a)
	if bound != nil {
		s.publishLocked() // includes what the watch has shown
	}
}

// setBound records that the pod was bound as it is.
func (s *state) setBound(a *assumption, bound *corev1.Pod, now time.Time) {
	a.since = now
	s.setAssumed(a, bound, bound.Spec.NodeName)
	// If the watch has shown another pod of that name, names keeps the other one.
	if named := s.named(bound.Namespace, bound.Name); named == nil || named.UID == bound.UID {
		s.name(bound)
	}
}

func (s *state) setAssumed(a *assumption, pod *corev1.Pod, node string) {
	s.lookups.Lock()
	a.pod, a.node, a.bound = pod, node, onNode(pod)
	s.lookups.Unlock()
	s.builder.AssumePod(pod, node)
}

func (s *state) finishBinding(uid types.UID, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.assumed[uid]; a != nil && a.pod != nil && !a.bound {
		bound := *a.pod // shallow: nothing that it shares changes
		bound.Spec.NodeName = a.node
		s.setBound(a, &bound, now)
		s.publishLocked()
	}
}

// unconfirmed returns the pods that count as bound since before the time.
func (s *state) unconfirmed(before time.Time) []*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pods []*corev1.Pod
	for _, a := range s.assumed {
		if a.bound && a.since.Before(before) {
			pods = append(pods, a.pod)
		}
	}
	return pods
}

// resolve replaces the assumption that the pod is bound with its state in the API server; nil if the pod is gone. It has no effect if the
// assumption has changed meanwhile.
func (s *state) resolve(assumed, truth *corev1.Pod, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.assumed[assumed.UID]
	if a == nil || a.pod != assumed {
		return
	}
	if onNode(truth) {
		s.setBound(a, truth, now)
	} else {
		s.drop(assumed.UID, a)
	}
	s.publishLocked()
}

func onNode(pod *corev1.Pod) bool {
	return pod != nil && pod.Spec.NodeName != "" && !snapshot.Ended(pod)
}
