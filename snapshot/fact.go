package snapshot

import (
	"sync/atomic"
	"weak"

	corev1 "k8s.io/api/core/v1"
)

// Fact is a value computed from one node and the pods on it, and kept with that Node. A policy
// creates its Facts once, when it is built, one for each value, and calls [Fact.Of] in Filter and
// Score. A Node keeps the values of any number of Facts, but not the Facts themselves: when the
// garbage collector has found a Fact unused, for example after a reload, its values are dropped.
type Fact[T any] struct {
	key     factKey
	compute func(*Node) T
}

// NewFact returns a Fact computed by the given function, which must be pure and safe for concurrent
// use, even for the same Node.
func NewFact[T any](compute func(*Node) T) *Fact[T] {
	return &Fact[T]{key: newFactKey(), compute: compute}
}

// Of returns the value for the node. All callers share it and must not change it. Only the first
// call for a Node computes and allocates.
func (f *Fact[T]) Of(n *Node) *T {
	if value := n.facts.find(f.key.weak); value != nil {
		return value.(*T)
	}
	return n.facts.keep(newEntry(f.key.weak, f.compute(n))).(*T)
}

// ObjectFact is like a [Fact], but computed from the Node object alone. It is kept when the pods on
// the node change.
type ObjectFact[T any] struct {
	key     factKey
	compute func(*corev1.Node) T
}

// NewObjectFact returns an ObjectFact computed by the given function, which must be pure and safe
// for concurrent use, even for the same object.
func NewObjectFact[T any](compute func(*corev1.Node) T) *ObjectFact[T] {
	return &ObjectFact[T]{key: newFactKey(), compute: compute}
}

// Of is like [Fact.Of].
func (f *ObjectFact[T]) Of(n *Node) *T {
	if value := n.objectFacts.find(f.key.weak); value != nil {
		return value.(*T)
	}
	return n.objectFacts.keep(newEntry(f.key.weak, f.compute(n.Object))).(*T)
}

// PodFact is like a [Fact], but computed from one pod on a node. It is kept until the pod changes:
// when another pod comes to a node of many pods, a Fact that adds up a PodFact need not read all of
// them again.
type PodFact[T any] struct {
	key     factKey
	compute func(*corev1.Pod) T
}

// NewPodFact returns a PodFact computed by the given function, which must be pure and safe for
// concurrent use, even for the same pod.
func NewPodFact[T any](compute func(*corev1.Pod) T) *PodFact[T] {
	return &PodFact[T]{key: newFactKey(), compute: compute}
}

// Of is like [Fact.Of], for the pod with this index in n.Pods. Nodes that are made from n later
// have the value as well.
func (f *PodFact[T]) Of(n *Node, index int) *T {
	if value := n.podFacts[index].find(f.key.weak); value != nil {
		return value.(*T)
	}
	return n.podFacts[index].keep(newEntry(f.key.weak, f.compute(n.Pods[index]))).(*T)
}

// podFacts returns the facts of the pods, which are in the order of a Node: those of an earlier
// Node, which may be nil, for the pods that it has.
func podFacts(pods []*corev1.Pod, earlier *Node) []facts {
	all := make([]facts, len(pods))
	if earlier == nil {
		return all
	}
	before, at := earlier.Pods, 0
	for i, pod := range pods {
		for at < len(before) && before[at] != pod && comparePods(before[at], pod) < 0 {
			at++
		}
		if at < len(before) && before[at] == pod { // without reading the pod, as for most
			all[i].newest.Store(earlier.podFacts[at].newest.Load())
			at++
		}
	}
	return all
}

// factKey identifies a Fact. Entries hold the weak pointer, which is nil once the Fact, with the
// strong pointer, is garbage-collected.
type factKey struct {
	identity *identity
	weak     weak.Pointer[identity]
}

// identity holds a pointer because the runtime may place several objects without
// pointers in one block, which is collected as a whole.
type identity struct{ _ *byte }

func newFactKey() factKey {
	id := new(identity)
	return factKey{id, weak.Make(id)}
}

// facts holds the values of one Node, or of one pod, the newest first. It is a list, because there
// are few values, and because a Node should be small, so that thousands of them fit the processor's
// caches. The zero value is empty.
type facts struct{ newest atomic.Pointer[factEntry] }

// factEntry is immutable once it is in a list.
type factEntry struct {
	key   weak.Pointer[identity]
	value any // a pointer to the Fact's T
	older *factEntry
}

// newEntry allocates the value right behind its entry, so that loading the entry loads the value,
// too.
func newEntry[T any](key weak.Pointer[identity], value T) *factEntry {
	e := &struct {
		factEntry
		value T
	}{value: value}
	e.factEntry = factEntry{key: key, value: &e.value}
	return &e.factEntry
}

// find returns the value for the key, or nil.
func (f *facts) find(key weak.Pointer[identity]) any { return f.newest.Load().find(key) }

// find searches the list from this entry on, which may be nil.
func (e *factEntry) find(key weak.Pointer[identity]) any {
	for ; e != nil; e = e.older {
		if e.key == key {
			return e.value
		}
	}
	return nil
}

// keep adds the entry, unless another goroutine was faster, and returns the value that all callers
// share. If the list holds a value of a Fact that is gone, keep starts a new list: the values of
// other Facts are computed once more when they are needed.
func (f *facts) keep(entry *factEntry) any {
	for {
		newest := f.newest.Load()
		if kept := newest.find(entry.key); kept != nil {
			return kept
		}
		if entry.older = newest; newest.holdsUnused() {
			entry.older = nil
		}
		if f.newest.CompareAndSwap(newest, entry) {
			return entry.value
		}
	}
}

func (e *factEntry) holdsUnused() bool {
	for ; e != nil; e = e.older {
		if e.key.Value() == nil {
			return true
		}
	}
	return false
}
