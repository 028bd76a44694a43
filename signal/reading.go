package signal

import (
	"math"
	"time"

	"outboard.dev/outboard/snapshot"
)

// Why samples are dropped, in metrics.
const (
	notANumber  = "not_a_number" // NaN or infinite
	duplicate   = "duplicate"    // the key was there before
	unknownNode = "unknown_node" // there is no such node
)

// reading is what one successful reading said, by key.
type reading map[string]snapshot.Value

// accept makes a reading of samples. Of samples with one key the first counts. A number
// without a time may be as old as the reading: it is from when that began. A time in the
// future would never grow old, and becomes now. dropped is called for each
// sample that is left out.
func accept(samples []Sample, began, now time.Time, dropped func(why string)) reading {
	r := make(reading, len(samples))
	for _, s := range samples {
		if math.IsNaN(s.Number) || math.IsInf(s.Number, 0) {
			dropped(notANumber)
			continue
		}
		if _, ok := r[s.Key]; ok {
			dropped(duplicate)
			continue
		}
		switch {
		case s.At.IsZero():
			s.At = began
		case s.At.After(now):
			s.At = now
		}
		r[s.Key] = snapshot.Value{Number: s.Number, At: s.At}
	}
	return r
}

// known leaves out the values about nodes that do not exist.
func (r reading) known(view *snapshot.View) (reading, int) {
	kept := make(reading, len(r))
	for key, v := range r {
		if view.Node(key) != nil {
			kept[key] = v
		}
	}
	return kept, len(r) - len(kept)
}

// aged marks the values that are too old now. expires is when the next one will be;
// zero if none is left.
func (r reading) aged(now time.Time, maxAge time.Duration) (values map[string]snapshot.Value, stale int, expires time.Time) {
	values = make(map[string]snapshot.Value, len(r))
	for key, v := range r {
		until := v.At.Add(maxAge)
		if v.Stale = !now.Before(until); v.Stale {
			stale++
		} else if expires.IsZero() || until.Before(expires) {
			expires = until
		}
		values[key] = v
	}
	return values, stale, expires
}

// newest is when the newest value was true; zero if there is none.
func (r reading) newest() time.Time {
	var at time.Time
	for _, v := range r {
		if v.At.After(at) {
			at = v.At
		}
	}
	return at
}
