package snapshot

import (
	"iter"
	"maps"
	"math"
	"slices"
	"time"
)

// Value is one number of a Column. The zero Value is nothing known.
type Value struct {
	// Number is never NaN nor infinite.
	Number float64
	// At is when the number was true, by the source's own word if it has one. Zero:
	// nothing is known.
	At time.Time
	// Stale says that the number was too old when the View was published.
	Stale bool
}

// Current says whether the number may be relied on: it is known and not stale.
func (v Value) Current() bool { return !v.At.IsZero() && !v.Stale }

// Column is what one outside source says: numbers by key. The keys are names of
// nodes, or whatever the source counts: features of a licence server, resources of
// another cluster. The key of a number that stands alone is "". A Column never
// changes; new numbers are a new Column in the next View. A nil *Column is empty.
type Column struct {
	name   string
	values map[string]Value
	rows   []Value // by row of the View that holds the Column
}

// NewColumn returns a Column. values must not be written to afterwards. Numbers
// that are NaN or infinite are left out.
func NewColumn(name string, values map[string]Value) *Column {
	for _, v := range values {
		if math.IsNaN(v.Number) || math.IsInf(v.Number, 0) {
			values = maps.Clone(values)
			maps.DeleteFunc(values, func(_ string, v Value) bool { return math.IsNaN(v.Number) || math.IsInf(v.Number, 0) })
			break
		}
	}
	return &Column{name: name, values: values}
}

// Name is the name of the source.
func (c *Column) Name() string {
	if c == nil {
		return ""
	}
	return c.name
}

// Of returns what is known about the node, which is one of the View that holds the
// Column, or of none. It does not allocate.
func (c *Column) Of(n *Node) Value {
	if c == nil {
		return Value{}
	}
	if row := n.Row(); row >= 0 && row < len(c.rows) {
		return c.rows[row]
	}
	return c.values[n.Name]
}

// Get returns what is known under the key. It does not allocate.
func (c *Column) Get(key string) Value {
	if c == nil {
		return Value{}
	}
	return c.values[key]
}

// All yields the values in order of key.
func (c *Column) All() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		if c == nil {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(c.values)) {
			if !yield(key, c.values[key]) {
				return
			}
		}
	}
}

// Len is the number of values.
func (c *Column) Len() int {
	if c == nil {
		return 0
	}
	return len(c.values)
}

// laidOut returns the Column with its values by row of the nodes.
func (c *Column) laidOut(rows []*Node) *Column {
	next := &Column{name: c.name, values: c.values, rows: make([]Value, len(rows))}
	for row, n := range rows {
		if n != nil {
			next.rows[row] = c.values[n.Name]
		}
	}
	return next
}
