package poll

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/snapshot"
)

// Why samples are dropped, in metrics.
const (
	notANumber  = "not_a_number" // NaN or infinite
	duplicate   = "duplicate"    // an earlier sample has the key
	unknownNode = "unknown_node" // there is no such node
	longKey     = "long_key"     // the key has more than maxKey bytes
)

// maxKey bounds the key of a sample, in bytes: several times the name of a node.
const maxKey = 1 << 10

// reading is the result of one successful read, by key.
type reading map[string]snapshot.Value

// accept makes a reading from samples. Of samples with the same key the first one counts. A number
// without a time gets the time when the read began. A time in the future would never become stale,
// and is replaced with now. accept calls dropped for each sample that is left out.
func accept(samples []signal.Sample, began, now time.Time, dropped func(why string)) reading {
	r := make(reading, len(samples))
	for _, s := range samples {
		if math.IsNaN(s.Number) || math.IsInf(s.Number, 0) {
			dropped(notANumber)
			continue
		}
		if len(s.Key) > maxKey {
			dropped(longKey)
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

// known returns the values about nodes of the view, by name, and the keys of the others in order. A
// key that is no name may be the InternalIP of one node.
func (r reading) known(view *snapshot.View) (kept reading, unknown []string) {
	kept = make(reading, len(r))
	for key, v := range r {
		if view.Node(key) != nil {
			kept[key] = v
		} else {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	names := namesByIP(view)
	unknown = slices.DeleteFunc(unknown, func(key string) bool {
		ip, _ := netip.ParseAddr(key)
		name := names[ip.Unmap()]
		if _, has := kept[name]; name == "" || has {
			return false
		}
		kept[name] = r[key]
		return true
	})
	return kept, unknown
}

// namesByIP returns the names of nodes by InternalIP; "" if several have it.
func namesByIP(view *snapshot.View) map[netip.Addr]string {
	names := map[netip.Addr]string{}
	for n := range view.All() {
		for _, a := range n.Object.Status.Addresses { // only InternalIPs are kept
			ip, _ := netip.ParseAddr(a.Address)
			if _, has := names[ip.Unmap()]; has {
				names[ip.Unmap()] = ""
			} else {
				names[ip.Unmap()] = n.Name
			}
		}
	}
	return names
}

// aged marks the values that are stale now. expires is when the next one becomes stale; zero if
// none will.
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

// newest returns the time of the newest value; zero if there is none.
func (r reading) newest() time.Time {
	var at time.Time
	for _, v := range r {
		if v.At.After(at) {
			at = v.At
		}
	}
	return at
}
