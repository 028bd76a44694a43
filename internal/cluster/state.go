package cluster

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/cluster/assumption"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// State is the known state of a cluster, without a client, clock or goroutine: what the watches
// show, and what the API server responds about pods, comes as calls of its methods. They are safe
// for concurrent use; events of one resource come from one goroutine.
//
// Events of the watch come in order, and each is the state at some moment not before that of the
// last one, except after an etcd restore, when it is older. So events are applied as they come, and
// resourceVersions are never compared.
//
// What always holds when no method runs:
//
//   - The builder has each pod as its [assumption.State] says, or else as the watch has shown it
//     last. A pod without an assumption that the watch has not shown is not in the builder.
//   - The published View is the builder's at a moment. It has what Assume, Bind and LivePod have
//     done once these return, and everything else soon: changed has an element until then.
//   - A ledger in the builder lacks the allocations in gone, which the object in ledgers still has.
type State struct {
	// lookups guards the next five fields. It is separate from mu so that looking up a pod does not
	// wait while a View is created. Writers hold both.
	lookups sync.RWMutex
	pods    map[types.UID]*corev1.Pod // as shown by the watch
	unbound map[types.UID]*corev1.Pod // those of pods that are not on a node
	// unboundVersion counts the changes of unbound.
	unboundVersion uint64
	assumed        map[types.UID]assumption.State // the pods that are decided to be on a node
	ledgers        map[string]*ledger.Object      // by name

	published atomic.Pointer[published]
	changed   chan struct{} // capacity 1: there may be something to publish

	mu          sync.Mutex
	builder     snapshot.Builder
	complete    bool                   // Views may be published
	allocations map[types.UID][]string // the names of the Ledgers in which a pod has allocations
	gone        map[types.UID][]string // the names of those in which a pod that is gone has kept its allocations since
}

// published is the current View.
type published struct {
	view       *snapshot.View
	at         time.Time
	superseded chan struct{} // closed when there is a newer View
}

// NewState returns the State of an empty cluster. Its View stays empty until SetComplete is called.
func NewState() *State {
	s := &State{
		pods:        map[types.UID]*corev1.Pod{},
		unbound:     map[types.UID]*corev1.Pod{},
		ledgers:     map[string]*ledger.Object{},
		changed:     make(chan struct{}, 1),
		assumed:     map[types.UID]assumption.State{},
		allocations: map[types.UID][]string{},
		gone:        map[types.UID][]string{},
	}
	s.published.Store(&published{view: &snapshot.View{}, at: time.Now(), superseded: make(chan struct{})})
	s.builder.DropHistory()
	return s
}

// View returns the latest view, without waiting. It is never nil, and empty until everything was
// read.
func (s *State) View() *snapshot.View { return s.published.Load().view }

// Superseded returns a channel that is closed once View returns another View than this one.
func (s *State) Superseded(view *snapshot.View) <-chan struct{} {
	if p := s.published.Load(); p.view == view {
		return p.superseded
	}
	done := make(chan struct{})
	close(done)
	return done
}

// Pod returns the trimmed pod with exactly this UID and resourceVersion, or nil. It may not find a
// version of a bound pod that is in the View, because versions with the same relevant parts share
// one object. It does not return a pod of which the cluster has only a part.
func (s *State) Pod(uid types.UID, resourceVersion string) *corev1.Pod {
	if pod := s.PodByUID(uid); pod != nil && pod.ResourceVersion == resourceVersion && resourceVersion != "" && !snapshot.IsReduced(pod) {
		return pod
	}
	return nil
}

// PodByUID returns the trimmed pod as last shown by the watch, or nil.
func (s *State) PodByUID(uid types.UID) *corev1.Pod {
	s.lookups.RLock()
	defer s.lookups.RUnlock()
	return s.pods[uid]
}

// LatestPod returns the trimmed pod in its latest known state, including what Bind has bound, or
// nil. A pod that only Bind has shown has no resourceVersion.
func (s *State) LatestPod(uid types.UID) *corev1.Pod {
	s.lookups.RLock()
	defer s.lookups.RUnlock()
	return s.latest(uid)
}

// latest is LatestPod while lookups is held.
func (s *State) latest(uid types.UID) *corev1.Pod {
	if a := s.assumed[uid]; a.Bound {
		return a.Pod
	}
	return s.pods[uid]
}

// PodByName is LatestPod for the pod with the name. It compares the names of all pods.
func (s *State) PodByName(namespace, name string) *corev1.Pod {
	s.lookups.RLock()
	defer s.lookups.RUnlock()
	for uid, pod := range s.pods {
		if pod.Name == name && pod.Namespace == namespace {
			return s.latest(uid)
		}
	}
	for _, a := range s.assumed { // the watch may not have shown the pod yet
		if a.Bound && a.Pod.Name == name && a.Pod.Namespace == namespace {
			return a.Pod
		}
	}
	return nil
}

// Pods returns the trimmed pods as last shown by the watch, in no particular order. It omits a pod
// that only this process has bound, which may be newer than a list.
func (s *State) Pods() []*corev1.Pod {
	s.lookups.RLock()
	defer s.lookups.RUnlock()
	return slices.Collect(maps.Values(s.pods))
}

// CountPods returns how many pods Pods returns.
func (s *State) CountPods() int {
	s.lookups.RLock()
	defer s.lookups.RUnlock()
	return len(s.pods)
}

// Unbound returns those of Pods that are not on a node, in no particular order.
func (s *State) Unbound() []*corev1.Pod {
	s.lookups.RLock()
	defer s.lookups.RUnlock()
	return slices.Collect(maps.Values(s.unbound))
}

// UnboundVersion returns a number that is another one after each change of Unbound.
func (s *State) UnboundVersion() uint64 {
	s.lookups.RLock()
	defer s.lookups.RUnlock()
	return s.unboundVersion
}

// KeepHistory sets whether Views have a History, from the next one on. It may change at any time:
// the History then starts with the existing pods.
func (s *State) KeepHistory(keep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if keep {
		s.builder.KeepHistory(maps.Values(s.pods))
	} else {
		s.builder.DropHistory()
	}
}

// SetSignal adds the signal to the following Views, or replaces the one with its name.
func (s *State) SetSignal(signal *snapshot.Signal) {
	s.change(func(b *snapshot.Builder) { b.SetSignal(signal) })
}

// DeleteSignal removes the signal from the following Views.
func (s *State) DeleteSignal(name string) {
	s.change(func(b *snapshot.Builder) { b.DeleteSignal(name) })
}

// SetComplete says that everything was read once: Views are published from now on.
func (s *State) SetComplete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complete = true
	s.publishLocked()
}

// Publish has the View show all changes.
func (s *State) Publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publishLocked()
}

// publishLocked stores the View while the lock is held, so that Views are stored in order of
// generation.
func (s *State) publishLocked() {
	if !s.complete {
		return
	}
	if v := s.builder.View(); v != s.View() {
		last := s.published.Swap(&published{view: v, at: time.Now(), superseded: make(chan struct{})})
		close(last.superseded)
	}
}

func (s *State) requestPublish() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// change changes the next View.
func (s *State) change(f func(*snapshot.Builder)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.builder)
	s.requestPublish()
}

// SetNode handles a node shown by the watch.
func (s *State) SetNode(node *corev1.Node) { s.change(func(b *snapshot.Builder) { b.SetNode(node) }) }

// RemoveNode handles an event of the watch that a node is gone.
func (s *State) RemoveNode(node *corev1.Node) {
	s.change(func(b *snapshot.Builder) { b.DeleteNode(node.Name) })
}

// SetPod handles a pod shown by the watch.
func (s *State) SetPod(pod *corev1.Pod) {
	if snapshot.Ended(pod) {
		s.RemovePod(pod)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(pod)
	next, e := s.assumed[pod.UID].Watch(pod)
	s.apply(pod.UID, next, e)
	s.allocationsEnd(pod.UID, false)
	s.requestPublish()
}

// RemovePod handles an event of the watch that a pod is gone. It reads only the UID.
func (s *State) RemovePod(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookups.Lock()
	delete(s.pods, pod.UID)
	if s.unbound[pod.UID] != nil {
		delete(s.unbound, pod.UID)
		s.unboundVersion++
	}
	s.lookups.Unlock()
	next, e := s.assumed[pod.UID].Watch(nil)
	s.apply(pod.UID, next, e)
	s.builder.DeletePod(pod.UID)
	s.allocationsEnd(pod.UID, true)
	s.requestPublish()
}

// addToViews counts the pod, which the watch shows, on its node, if it has one. If the pod differs
// from the previous object only in its resourceVersion, addToViews keeps that one.
func (s *State) addToViews(pod *corev1.Pod) {
	s.builder.SetPod(pod)
	if kept := s.builder.Pod(pod.UID); kept != nil && kept != pod {
		s.store(kept)
	}
}

func (s *State) store(pod *corev1.Pod) {
	s.lookups.Lock()
	defer s.lookups.Unlock()
	s.pods[pod.UID] = pod
	if pod.Spec.NodeName == "" {
		s.unbound[pod.UID] = pod
		s.unboundVersion++
	} else if s.unbound[pod.UID] != nil {
		delete(s.unbound, pod.UID)
		s.unboundVersion++
	}
}
