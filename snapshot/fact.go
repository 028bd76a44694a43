package snapshot

import (
	"sync/atomic"
	"weak"

	corev1 "k8s.io/api/core/v1"
)

// Fact is something computed from one node and the pods on it, and kept with
// that Node. A policy makes its Facts when it is built, one for each thing it
// wants to know, and asks [Fact.Of] in Filter and Score. A Node may keep values of any
// number of Facts, and does not keep the Facts themselves: when the garbage collector
// has found one unused, as after a reload, its values are dropped.
type Fact[T any] struct {
	key     factKey
	compute func(*Node) T
}

// NewFact returns a Fact computed by the given function, which must be pure and
// may be called by several goroutines at once, for the same Node too.
func NewFact[T any](compute func(*Node) T) *Fact[T] {
	return &Fact[T]{key: newFactKey(), compute: compute}
}

// Of returns the fact about the node. The value is shared by all who ask and
// must not be written to. Only the first call for a Node computes and allocates.
func (f *Fact[T]) Of(n *Node) *T {
	if value := n.facts.find(f.key.weak); value != nil {
		return value.(*T)
	}
	return n.facts.keep(newEntry(f.key.weak, f.compute(n))).(*T)
}

// ObjectFact is like a [Fact], but computed from the Node object alone. It
// outlives changes of the pods on the node.
type ObjectFact[T any] struct {
	key     factKey
	compute func(*corev1.Node) T
}

// NewObjectFact returns an ObjectFact computed by the given function, which must
// be pure and may be called by several goroutines at once, for the same object
// too.
func NewObjectFact[T any](compute func(*corev1.Node) T) *ObjectFact[T] {
	return &ObjectFact[T]{key: newFactKey(), compute: compute}
}

// Of is as [Fact.Of].
func (f *ObjectFact[T]) Of(n *Node) *T {
	if value := n.objectFacts.find(f.key.weak); value != nil {
		return value.(*T)
	}
	return n.objectFacts.keep(newEntry(f.key.weak, f.compute(n.Object))).(*T)
}

// factKey identifies a Fact: entries refer to it by the weak pointer, which is nil once
// the Fact, with the strong pointer, is gone.
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

// facts are what is kept of one Node, the newest first: a list, because there are
// few, and because a Node should be small, so that thousands of them fit the
// processor's caches. The zero value is empty.
type facts struct{ newest atomic.Pointer[factEntry] }

// factEntry never changes once it is in a list.
type factEntry struct {
	key   weak.Pointer[identity]
	value any // a pointer to the Fact's T
	older *factEntry
}

// newEntry puts the value right behind its entry, so that who has loaded one has
// loaded the other.
func newEntry[T any](key weak.Pointer[identity], value T) *factEntry {
	e := &struct {
		factEntry
		value T
	}{value: value}
	e.factEntry = factEntry{key: key, value: &e.value}
	return &e.factEntry
}

// find returns the value kept under the key, or nil.
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

// keep keeps the entry, unless another goroutine was first, and returns the value
// that is kept: one for all. When the list holds a value of a Fact that is gone, it
// starts again: what is still wanted of the others is computed once more.
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
