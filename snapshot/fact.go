package snapshot

import (
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
)

// maxFacts bounds how many facts one Node keeps. A reloaded configuration brings
// new Facts while unchanged nodes still hold the old ones; past the bound the
// oldest are dropped and, if still wanted, computed again.
const maxFacts = 16

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

// facts are few, so they are searched in order; a request asks for one of each
// node, so each is one load away. The zero value is empty.
type facts struct {
	slots [maxFacts]atomic.Pointer[factEntry] // filled from the first on
	full  atomic.Uint32                       // how often a fact had to make room
}

type factEntry struct {
	key   *factKey
	value any // a pointer to the Fact's T
}

// newEntry puts the value right behind its entry, so that who has loaded one has loaded the other.
func newEntry[T any](key *factKey, value T) *factEntry {
	e := &struct {
		factEntry
		value T
	}{value: value}
	e.factEntry = factEntry{key, &e.value}
	return &e.factEntry
}

// find returns the value kept under the key, or nil.
func (f *facts) find(key *factKey) any {
	for i := range f.slots {
		entry := f.slots[i].Load()
		if entry == nil {
			return nil
		}
		if entry.key == key {
			return entry.value
		}
	}
	return nil
}

// keep keeps the entry, unless another goroutine was first, and returns the value
// that is kept: one for all.
func (f *facts) keep(entry *factEntry) any {
	for i := range f.slots {
		if f.slots[i].CompareAndSwap(nil, entry) {
			return entry.value
		}
		if kept := f.slots[i].Load(); kept.key == entry.key {
			return kept.value
		}
	}
	f.slots[(f.full.Add(1)-1)%maxFacts].Store(entry)
	return entry.value
}
