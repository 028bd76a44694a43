package snapshot

import "slices"

// maxFacts bounds how many facts one Node keeps. A reloaded configuration brings
// new Facts while unchanged nodes still hold the old ones; past the bound the
// oldest are dropped and, if still wanted, computed again.
const maxFacts = 32

// Fact is something computed from one node and the pods on it, and kept with
// that Node. A policy makes its Facts when it is built, one for each thing it
// wants to know, and asks [Fact.Of] in Filter and Score.
type Fact[T any] struct {
	key     *factKey
	compute func(*Node) T
}

// factKey is not empty, because pointers to distinct empty variables may be equal.
type factKey struct{ _ byte }

type factEntry struct {
	key   *factKey
	value any
}

// NewFact returns a Fact computed by the given function, which must be pure and
// may be called by several goroutines at once, for the same Node too.
func NewFact[T any](compute func(*Node) T) *Fact[T] {
	return &Fact[T]{key: new(factKey), compute: compute}
}

// Of returns the fact about the node. The value is shared by all who ask and
// must not be written to. Only the first call for a Node computes and allocates.
func (f *Fact[T]) Of(n *Node) *T {
	if entries := n.facts.Load(); entries != nil {
		for i := range *entries {
			if entry := &(*entries)[i]; entry.key == f.key {
				return entry.value.(*T)
			}
		}
	}
	return f.store(n)
}

func (f *Fact[T]) store(n *Node) *T {
	value := f.compute(n)
	for {
		old := n.facts.Load()
		var entries []factEntry
		if old != nil {
			if i := slices.IndexFunc(*old, func(e factEntry) bool { return e.key == f.key }); i >= 0 {
				return (*old)[i].value.(*T) // another goroutine was first: one value for all
			}
			entries = (*old)[max(0, len(*old)-maxFacts+1):]
		}
		entries = append(slices.Clip(entries), factEntry{f.key, &value})
		if n.facts.CompareAndSwap(old, &entries) {
			return &value
		}
	}
}
