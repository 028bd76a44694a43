package snapshot

import (
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
)

// maxFacts bounds how many facts one Node keeps. A reloaded configuration brings
// new Facts while unchanged nodes still hold the old ones; past the bound all are
// dropped and, if still wanted, computed again.
const maxFacts = 32

// Fact is something computed from one node and the pods on it, and kept with
// that Node. A policy makes its Facts when it is built, one for each thing it
// wants to know, and asks [Fact.Of] in Filter and Score.
type Fact[T any] struct {
	key     *factKey
	compute func(*Node) T
}

// NewFact returns a Fact computed by the given function, which must be pure and
// may be called by several goroutines at once, for the same Node too.
func NewFact[T any](compute func(*Node) T) *Fact[T] {
	return &Fact[T]{key: new(factKey), compute: compute}
}

// Of returns the fact about the node. The value is shared by all who ask and
// must not be written to. Only the first call for a Node computes and allocates.
func (f *Fact[T]) Of(n *Node) *T {
	if value := n.facts.find(f.key); value != nil {
		return value.(*T)
	}
	return n.facts.keep(newEntry(f.key, f.compute(n))).(*T)
}

// ObjectFact is like a [Fact], but computed from the Node object alone. It
// outlives changes of the pods on the node.
type ObjectFact[T any] struct {
	key     *factKey
	compute func(*corev1.Node) T
}

// NewObjectFact returns an ObjectFact computed by the given function, which must
// be pure and may be called by several goroutines at once, for the same object
// too.
func NewObjectFact[T any](compute func(*corev1.Node) T) *ObjectFact[T] {
	return &ObjectFact[T]{key: new(factKey), compute: compute}
}

// Of is as [Fact.Of].
func (f *ObjectFact[T]) Of(n *Node) *T {
	if value := n.objectFacts.find(f.key); value != nil {
		return value.(*T)
	}
	return n.objectFacts.keep(newEntry(f.key, f.compute(n.Object))).(*T)
}

// factKey is not empty, because pointers to distinct empty variables may be equal.
type factKey struct{ _ byte }

// facts are what is kept of one Node, the newest first: a list, because there are
// few, and because a Node should be small, so that thousands of them fit the
// processor's caches. The zero value is empty.
type facts struct{ newest atomic.Pointer[factEntry] }

// factEntry never changes once it is in a list.
type factEntry struct {
	key   *factKey
	value any // a pointer to the Fact's T
	older *factEntry
	count int // of entries from this one on
}

// newEntry puts the value right behind its entry, so that who has loaded one has
// loaded the other.
func newEntry[T any](key *factKey, value T) *factEntry {
	e := &struct {
		factEntry
		value T
	}{value: value}
	e.factEntry = factEntry{key: key, value: &e.value}
	return &e.factEntry
}

// find returns the value kept under the key, or nil.
func (f *facts) find(key *factKey) any { return f.newest.Load().find(key) }

// find searches the list from this entry on, which may be nil.
func (e *factEntry) find(key *factKey) any {
	for ; e != nil; e = e.older {
		if e.key == key {
			return e.value
		}
	}
	return nil
}

// keep keeps the entry, unless another goroutine was first, and returns the value
// that is kept: one for all.
func (f *facts) keep(entry *factEntry) any {
	for {
		newest := f.newest.Load()
		if kept := newest.find(entry.key); kept != nil {
			return kept
		}
		entry.older, entry.count = newest, 1
		if newest != nil {
			entry.count = newest.count + 1
		}
		if entry.count > maxFacts {
			entry.older, entry.count = nil, 1
		}
		if f.newest.CompareAndSwap(newest, entry) {
			return entry.value
		}
	}
}
