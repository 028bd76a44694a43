package cluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/cluster/assumption"
	"outboard.dev/outboard/snapshot"
)

// Assume counts the pod on the node, with these annotations, in all Views from now on. Call forget
// once the pod is bound, or will not be bound by this caller: if Bind has not bound the pod, it
// waits for a node again, and a new View shows that. A pod that was already decided to be on the
// node keeps its annotations. If another node was decided, Assume moves the pod: end the earlier
// decision first, as [binder.Binder.Resolve] does.
func (s *State) Assume(pod *corev1.Pod, node string) (forget func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, e := s.assumed[pod.UID].Assume(pod, node, s.PodByUID(pod.UID))
	s.decide(pod.UID, next, e)
	return func() { s.Forget(pod.UID) }
}

// Forget ends a call of Assume.
func (s *State) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, e := s.assumed[uid].Forget()
	s.decide(uid, next, e)
}

// Assumed returns the node on which the pod counts because of Assume, before Bind has bound it; ""
// if there is none.
func (s *State) Assumed(uid types.UID) (node string) {
	s.lookups.RLock()
	defer s.lookups.RUnlock()
	if a := s.assumed[uid]; !a.Bound {
		return a.Node
	}
	return ""
}

// ViewFor returns the latest View for the evaluation of the pod, which does not count against
// itself while it is decided to be on a node.
func (s *State) ViewFor(uid types.UID) *snapshot.View {
	node := s.Assumed(uid) // before the View is read: a View without the pod is newer
	view := s.View()
	if node == "" {
		return view
	}
	return view.WithoutPod(node, uid)
}

// BeginRequest returns the number of a request whose response may say that the pod is bound, for
// EndRequest.
func (s *State) BeginRequest(uid types.UID) (number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.assumed[uid].Begin()
	s.apply(uid, next, assumption.Unchanged)
	return next.Begun
}

// EndRequest ends a request. pod is the pod as the API server has bound or read it; nil if it is
// unknown or gone. If it is on a node, the View has it there when EndRequest returns, unless a
// later request has found it elsewhere, which is possible only if etcd was restored in between.
func (s *State) EndRequest(uid types.UID, number int, pod *corev1.Pod, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, e := s.assumed[uid].Respond(number, pod, s.PodByUID(uid), now)
	s.apply(uid, next, e)
	if pod != nil && pod.Spec.NodeName != "" {
		s.publishLocked() // includes what the watch has shown
	}
}

// FinishBinding says that the pod is bound to the node for which it was assumed, perhaps by another
// client than this Cluster. It leaves the View as it is until the next one: the pod counts on its
// node already.
func (s *State) FinishBinding(uid types.UID, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, e := s.assumed[uid].Finish(now)
	s.apply(uid, next, e)
	s.requestPublish()
}

// Unconfirmed returns the pods that count as bound since before the time.
func (s *State) Unconfirmed(before time.Time) []*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pods []*corev1.Pod
	for _, a := range s.assumed {
		if a.Bound && a.Since.Before(before) {
			pods = append(pods, a.Pod)
		}
	}
	return pods
}

// Confirm says how the API server has a pod of Unconfirmed; nil: it is gone.
func (s *State) Confirm(assumed, truth *corev1.Pod, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, e := s.assumed[assumed.UID].Confirm(assumed, truth, now)
	s.decide(assumed.UID, next, e)
}

// apply makes a step of the pod's assumption, and has the Views show its effect.
func (s *State) apply(uid types.UID, next assumption.State, e assumption.Effect) {
	watched := s.PodByUID(uid)
	s.lookups.Lock()
	if next == (assumption.State{}) {
		delete(s.assumed, uid)
	} else {
		s.assumed[uid] = next
	}
	s.lookups.Unlock()
	switch {
	case e == assumption.AsAssumed:
		s.builder.AssumePod(next.Pod, next.Node)
	case e == assumption.AsWatched && watched != nil:
		s.addToViews(watched)
	case e == assumption.AsWatched:
		s.builder.DeletePod(uid)
	}
}

// decide is apply, and publishes the effect.
func (s *State) decide(uid types.UID, next assumption.State, e assumption.Effect) {
	if s.apply(uid, next, e); e != assumption.Unchanged {
		s.publishLocked()
	}
}
