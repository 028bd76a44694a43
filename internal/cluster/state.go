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

// state is the known state of the cluster. Its methods are safe for concurrent use; events of one
// resource come from one goroutine.
//
// Events of the watch come in order, and each is the state at some moment not before that of the
// last one, except after an etcd restore, when it is older. So events are applied as they come, and
// resourceVersions are never compared. A pod with an [assumption.State] replaces the watch's version.
type state struct {
	// lookups guards pods, unbound, names, assumed and ledgers. It is separate from mu so that looking up a pod
	// does not wait while a View is created. Writers hold both.
	lookups sync.RWMutex
	// pods are the pods as shown by the watch, and unbound those of them that are not on a node. unboundVersion counts the changes of
	// unbound.
	pods           map[types.UID]*corev1.Pod
	unbound        map[types.UID]*corev1.Pod
	unboundVersion uint64
	// names are the pods as they are counted: as shown by the watch, or as bound by this process.
	names map[types.NamespacedName]*corev1.Pod
	// assumed are the pods that are decided to be on a node.
	assumed map[types.UID]assumption.State
	// ledgers are the Ledgers by name. lookups guards them, too.
	ledgers map[string]*ledger.Object

	published atomic.Pointer[published]
	changed   chan struct{} // capacity 1: there may be something to publish

	mu       sync.Mutex
	builder  snapshot.Builder
	complete bool                   // everything was read once: Views may be published
	claims   map[types.UID][]string // the names of the Ledgers in which a pod has claims
	gone     map[types.UID][]string // the names of those in which a pod that is gone has kept its claims since
}

// published is the current View.
type published struct {
	view       *snapshot.View
	at         time.Time
	superseded chan struct{} // closed when there is a newer View
}

func newState() *state {
	s := &state{
		pods:    map[types.UID]*corev1.Pod{},
		unbound: map[types.UID]*corev1.Pod{},
		names:   map[types.NamespacedName]*corev1.Pod{},
		ledgers: map[string]*ledger.Object{},
		changed: make(chan struct{}, 1),
		assumed: map[types.UID]assumption.State{},
		claims:  map[types.UID][]string{},
		gone:    map[types.UID][]string{},
	}
	s.published.Store(&published{view: &snapshot.View{}, at: time.Now(), superseded: make(chan struct{})})
	s.builder.DropHistory()
	return s
}

// setComplete permits publishing Views, and publishes the first one.
func (s *state) setComplete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complete = true
	s.publishLocked()
}

func (s *state) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publishLocked()
}

func (s *state) view() *snapshot.View { return s.published.Load().view }

// publishLocked stores the View while the lock is held, so that Views are stored in order of
// generation.
func (s *state) publishLocked() {
	if !s.complete {
		return
	}
	if v := s.builder.View(); v != s.view() {
		last := s.published.Swap(&published{view: v, at: time.Now(), superseded: make(chan struct{})})
		close(last.superseded)
	}
}

func (s *state) requestPublish() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// change changes the next View.
func (s *state) change(f func(*snapshot.Builder)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.builder)
	s.requestPublish()
}

func (s *state) setNode(node *corev1.Node) { s.change(func(b *snapshot.Builder) { b.SetNode(node) }) }

func (s *state) removeNode(node *corev1.Node) {
	s.change(func(b *snapshot.Builder) { b.DeleteNode(node.Name) })
}

// seen returns the pod as last shown by the watch, or nil.
func (s *state) seen(uid types.UID) *corev1.Pod {
	s.lookups.RLock()
	defer s.lookups.RUnlock()
	return s.pods[uid]
}

// named returns the pod with the name as it is counted, or nil.
func (s *state) named(namespace, name string) *corev1.Pod {
	s.lookups.RLock()
	defer s.lookups.RUnlock()
	return s.names[types.NamespacedName{Namespace: namespace, Name: name}]
}

// count returns the number of pods as shown by the watch.
func (s *state) count() int {
	s.lookups.RLock()
	defer s.lookups.RUnlock()
	return len(s.pods)
}

// allPods returns the pods as shown by the watch. It omits a pod that only this process has bound, which may be newer
// than a list.
func (s *state) allPods() []*corev1.Pod {
	s.lookups.RLock()
	defer s.lookups.RUnlock()
	return slices.Collect(maps.Values(s.pods))
}

func (s *state) unboundPods() []*corev1.Pod {
	s.lookups.RLock()
	defer s.lookups.RUnlock()
	return slices.Collect(maps.Values(s.unbound))
}

// setPod handles a pod shown by the watch.
func (s *state) setPod(pod *corev1.Pod) {
	if snapshot.Ended(pod) {
		s.removePod(pod)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(pod)
	next, e := s.assumed[pod.UID].Watch(pod)
	s.apply(pod.UID, next, e)
	if e == assumption.Unchanged && !next.Bound { // Views have it as it was assumed
		s.name(pod)
	}
	s.claimsEnd(pod.UID, false)
	s.requestPublish()
}

// removePod handles an event of the watch that a pod is gone. It reads only the UID, namespace and
// name.
func (s *state) removePod(pod *corev1.Pod) {
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
	s.removeFromViews(pod)
	s.claimsEnd(pod.UID, true)
	s.requestPublish()
}

// addToViews counts the pod, which the watch shows, on its node, if it has one. If the pod differs from the previous object only in its
// resourceVersion, addToViews keeps that one.
func (s *state) addToViews(pod *corev1.Pod) {
	s.builder.SetPod(pod)
	if kept := s.builder.Pod(pod.UID); kept != nil && kept != pod {
		pod = kept
		s.store(pod)
	}
	s.name(pod)
}

// removeFromViews undoes addToViews.
func (s *state) removeFromViews(pod *corev1.Pod) {
	s.builder.DeletePod(pod.UID)
	// Another pod may have the name now.
	if named := s.named(pod.Namespace, pod.Name); named != nil && named.UID == pod.UID {
		key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		s.lookups.Lock()
		defer s.lookups.Unlock()
		delete(s.names, key)
		for uid, a := range s.assumed { // Bind may have bound a later pod of that name
			if a.Bound && uid != pod.UID && a.Pod.Namespace == key.Namespace && a.Pod.Name == key.Name {
				s.names[key] = a.Pod
			}
		}
	}
}

func (s *state) store(pod *corev1.Pod) {
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

func (s *state) name(pod *corev1.Pod) {
	s.lookups.Lock()
	defer s.lookups.Unlock()
	s.names[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = pod
}
