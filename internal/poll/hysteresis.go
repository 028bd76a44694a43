package poll

import (
	"cmp"
	"maps"
	"time"

	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/snapshot"
)

// states are the states of numbers under hysteresis, by key. They are immutable; the next reading
// creates other states.
type states map[string]state

// state is 1 or 0 for one key. Its times are those of samples, so it depends on no clock.
type state struct {
	on    bool
	since time.Time // the sample that set the state
	seen  time.Time // the latest sample
	// against is the first of the latest samples, without a break, that are beyond the threshold of
	// the other state; zero if the latest is not.
	against time.Time
}

// step returns the states after the reading.
//
// The plain threshold determines the state for the first number of a key immediately, because its
// earlier state is unknown. From then on the state changes when all numbers for h.For or
// h.ClearAfter were beyond the threshold of the other state. A number that is not later than the
// one before changes nothing, and a gap longer than maxAge is a break. A key that is missing in the
// reading keeps its state until maxAge has passed at now, but only while there are at most most
// states.
func (s states) step(r reading, h *signal.Hysteresis, maxAge time.Duration, most int, now time.Time) states {
	next := make(states, len(r))
	for key, v := range r {
		next[key] = s[key].step(v, h, maxAge)
	}
	kept := maps.Clone(next)
	for key, old := range s {
		if _, ok := next[key]; !ok && now.Before(old.seen.Add(maxAge)) {
			kept[key] = old
		}
	}
	if len(kept) > most {
		return next
	}
	return kept
}

func (s state) step(v snapshot.Value, h *signal.Hysteresis, maxAge time.Duration) state {
	switch {
	case s.seen.IsZero():
		return state{on: sets(h, v.Number), since: v.At, seen: v.At}
	case !v.At.After(s.seen):
		return s
	}
	if v.At.Sub(s.seen) > maxAge {
		s.against = time.Time{}
	}
	s.seen = v.At
	beyond, hold := sets(h, v.Number), h.For
	if s.on {
		beyond, hold = clears(h, v.Number), h.ClearAfter
	}
	switch {
	case !beyond:
		s.against = time.Time{}
	case s.against.IsZero():
		s.against = v.At
	}
	if beyond && v.At.Sub(s.against) >= hold {
		s.on, s.since, s.against = !s.on, v.At, time.Time{}
	}
	return s
}

// reading returns the states as numbers, with the times of the latest samples.
func (s states) reading() reading {
	r := make(reading, len(s))
	for key, state := range s {
		v := snapshot.Value{At: state.seen}
		if state.on {
			v.Number = 1
		}
		r[key] = v
	}
	return r
}

// date sets the times of values to when their states were set.
func (s states) date(values map[string]snapshot.Value, byIP map[string]string) {
	for key, v := range values {
		v.At = s[cmp.Or(byIP[key], key)].since
		values[key] = v
	}
}

// sets reports whether the number is beyond the threshold of state 1.
func sets(h *signal.Hysteresis, number float64) bool {
	if h.Above != nil {
		return number > *h.Above
	}
	return number < *h.Below
}

// clears reports whether the number is beyond the threshold of state 0. A number between the
// thresholds is beyond neither.
func clears(h *signal.Hysteresis, number float64) bool {
	switch {
	case h.ClearBelow != nil:
		return number < *h.ClearBelow
	case h.ClearAbove != nil:
		return number > *h.ClearAbove
	}
	return !sets(h, number)
}
