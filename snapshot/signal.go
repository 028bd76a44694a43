package snapshot

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"
)

// Value is one number of a Signal. The zero Value is an unknown number.
type Value struct {
	// Number is never NaN nor infinite.
	Number float64
	// At is the time of the number, as reported by the source, or else when it was read. Zero: the
	// number is unknown.
	At time.Time
	// Stale is true if the number was too old when the View was published.
	Stale bool
}

// Current reports whether the number is known and not stale.
func (v Value) Current() bool { return !v.At.IsZero() && !v.Stale }

// Missing says why the signal has no current value, for explanations. about is what the value is
// about, such as "the node" or a key of the signal; "" if the signal is a single number. The value
// is not current.
func (v Value) Missing(signal, about string) string {
	if about != "" {
		about = " for " + about
	}
	if v.Stale {
		return fmt.Sprintf("signal %s is stale%s, %.4g at %s", signal, about, v.Number, v.At.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("signal %s has no value%s", signal, about)
}

// Signal holds the numbers that one external source reports, by key. The keys are the names of
// nodes, or of other things that the source counts: features of a license server, resources of
// another cluster. The key of a single number is "". A Signal is immutable; new numbers are in a
// new Signal of the next View. A nil *Signal is empty.
type Signal struct {
	name    string
	version uint64
	values  map[string]Value
}

// NewSignal returns a Signal. The caller must not change values afterwards. NewSignal omits numbers
// that are NaN or infinite.
func NewSignal(name string, values map[string]Value) *Signal {
	for _, v := range values {
		if math.IsNaN(v.Number) || math.IsInf(v.Number, 0) {
			values = maps.Clone(values)
			maps.DeleteFunc(values, func(_ string, v Value) bool { return math.IsNaN(v.Number) || math.IsInf(v.Number, 0) })
			break
		}
	}
	return &Signal{name: name, version: versions.Add(1), values: values}
}

// Version identifies the values: for as long as the process runs, no Signal with other values has
// the same version. It is 0 for nil.
func (s *Signal) Version() uint64 {
	if s == nil {
		return 0
	}
	return s.version
}

// Name returns the name by which policies read the signal; "" for nil.
func (s *Signal) Name() string {
	if s == nil {
		return ""
	}
	return s.name
}

// Of returns the value for the node. It does not allocate.
func (s *Signal) Of(n *Node) Value { return s.Get(n.Name) }

// Get returns the value for the key. It does not allocate.
func (s *Signal) Get(key string) Value {
	if s == nil {
		return Value{}
	}
	return s.values[key]
}

// All yields the values in order of key.
func (s *Signal) All() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		if s == nil {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(s.values)) {
			if !yield(key, s.values[key]) {
				return
			}
		}
	}
}

// Len returns the number of values.
func (s *Signal) Len() int {
	if s == nil {
		return 0
	}
	return len(s.values)
}
