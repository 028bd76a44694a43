package chaos

import (
	"fmt"
	"maps"

	"github.com/anishathalye/porcupine"
)

// holding is what a pod has allocated of a unit.
type holding struct{ pod, unit string }

// kind is what an operation is about.
type kind int

const (
	write kind = iota // of the ledger: allocations and releases
	bind              // of a pod to the node of the ledger
	end               // of a pod: it has ended, or is deleted
)

// operation is one request that the API server accepted or whose outcome is unknown. Rejected requests have no effect.
type operation struct {
	kind kind
	// allocations and releases are how a write changes what its sender has read, and held is what the ledger contains
	// after it.
	allocations, releases, held map[holding]int64
	planned                     map[string]map[string]string // by a write: the annotations that each pod's Binding must have
	pod                         string                       // of bind and end
	annotations                 map[string]string            // of bind
	unknown                     bool                         // the operation may also have no effect
}

// state is a ledger, and what became of its pods. It is immutable.
type state struct {
	held  map[holding]int64
	pods  map[string]map[string]string // with allocations, and the annotations that their Bindings must have
	bound map[string]bool              // pods that have not ended
}

// model is a sequential ledger of units with this capacity.
func model(capacity int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(s, input, _ any) (bool, any) {
			op := input.(operation)
			next, ok := s.(state).step(op, capacity)
			return ok || op.unknown, next // without an effect if its outcome is unknown
		},
		Equal: func(a, b any) bool {
			x, y := a.(state), b.(state)
			return maps.Equal(x.held, y.held) && maps.Equal(x.bound, y.bound) && maps.EqualFunc(x.pods, y.pods, maps.Equal)
		},
		DescribeOperation: func(input, _ any) string { return input.(operation).String() },
		DescribeState:     func(s any) string { return fmt.Sprintf("held %v, bound %v", s.(state).held, s.(state).bound) },
	}
}

// step returns the state after the operation, or false if the operation must not happen in this state.
func (s state) step(op operation, capacity int64) (state, bool) {
	next := state{held: maps.Clone(s.held), pods: s.pods, bound: maps.Clone(s.bound)}
	if s.held == nil {
		next.held, next.bound = map[holding]int64{}, map[string]bool{}
	}
	switch op.kind {
	case write:
		for h, amount := range op.releases {
			if next.held[h] != amount || s.bound[h.pod] {
				return s, false // a pod on a node keeps its allocation
			}
			delete(next.held, h)
		}
		for h, amount := range op.allocations {
			if next.held[h] != 0 {
				return s, false
			}
			next.held[h] = amount
		}
		used := map[string]int64{}
		for h, amount := range next.held {
			if used[h.unit] += amount; used[h.unit] > capacity {
				return s, false
			}
		}
		if next.pods = op.planned; !maps.Equal(next.held, op.held) {
			return s, false // an update is lost
		}
	case bind:
		planned, ok := s.pods[op.pod]
		for key, value := range planned {
			ok = ok && op.annotations[key] == value
		}
		if !ok || s.bound[op.pod] {
			return s, false
		}
		next.bound[op.pod] = true
	case end:
		delete(next.bound, op.pod)
	}
	return next, true
}

func (op operation) String() string {
	text := ""
	switch op.kind {
	case write:
		text = fmt.Sprintf("write: allocations %v, releases %v", op.allocations, op.releases)
	case bind:
		text = fmt.Sprintf("bind %s with %v", op.pod, op.annotations)
	case end:
		text = fmt.Sprintf("end of %s", op.pod)
	}
	if op.unknown {
		text += ": unknown outcome"
	}
	return text
}
