package licenses

import (
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// floatingSeats are the floating seats of a feature.
type floatingSeats struct {
	holders
	// unknown is true if the number of seats, or of used seats, is not reported, or is too old to
	// count.
	unknown  bool
	total    int64 // all seats
	others   int64 // of these, used by others, as far as known
	reserved int64 // of these, not for pods
	held     int64 // by pods; together with others it may exceed total
	// nominated are the seats for nominated pods that come before this pod.
	nominated int64
	// reported is how many seats the server reports as used; zero if it does not count.
	reported snapshot.Value
	counted  bool // reported counts, although it may be stale
}

// capacity returns how many seats pods can have.
func (s *floatingSeats) capacity() int64 { return max(0, s.total-s.reserved-s.others) }

// free returns what is left; less than 0 if there are fewer seats than were allocated.
func (s *floatingSeats) free() int64 {
	return s.capacity() - s.held - s.nominated
}

// floatingSeats counts the seats with the given holders.
func (f *feature) floatingSeats(signal *snapshot.Signal, h holders, whenStale policy.UnknownAction) floatingSeats {
	s := floatingSeats{holders: h, reserved: f.ReservedSeats, held: used(h.all)}
	counts := func(v snapshot.Value) bool { return v.Current() || !v.At.IsZero() && whenStale == policy.Neutral }
	if f.Seats != nil {
		s.total = *f.Seats
	}
	s.unknown = f.Seats == nil
	if f.Server == nil {
		return s
	}
	if v := signal.Get(f.totalKey); counts(v) {
		s.total, s.unknown = whole(math.Floor(v.Number)), false
	}
	v := signal.Get(f.usedKey)
	s.reported, s.counted = v, counts(v)
	if s.counted {
		s.others = whole(math.Ceil(v.Number))
	} else if whenStale == policy.Reject {
		s.unknown = true
	}
	if f.Server.UsedIncludesPods {
		s.others = max(0, s.others-claimedBefore(h.all, v.At.Add(-f.Server.checkoutDelay())))
	}
	return s
}

// whole converts a number of seats in a signal.
func whole(n float64) int64 { return int64(min(maxSeats, max(0, n))) }

// evaluate returns the verdict on whether there are seats for a pod of the namespace.
func (f *feature) evaluate(s *floatingSeats, seats int64, namespace string) policy.Verdict {
	switch most := max(0, s.total-s.reserved); {
	case s.unknown:
		return policy.Verdict{Reason: signalStale, Unresolvable: true}
	case seats > most:
		return policy.Verdict{Reason: tooFewSeats, Unresolvable: true, Have: most, Want: seats}
	case f.MaxPerNamespace != nil && snapshot.AddAmounts(claimedIn(s.all, namespace), seats) > *f.MaxPerNamespace:
		have := max(0, *f.MaxPerNamespace-claimedIn(s.all, namespace))
		return policy.Verdict{Reason: namespaceLimit, Unresolvable: true, Have: have, Want: seats}
	case seats > s.free():
		return policy.Verdict{Reason: noFreeSeat, Have: max(0, s.free()), Want: seats}
	}
	return policy.Verdict{}
}

// claim returns a claim of seats, if free seats are left, which are enough. The capacity is the sum
// of the claims and the free seats.
func claim(l *snapshot.Ledger, free, seats int64) policy.Claim {
	const unit = "seats"
	return policy.Claim{
		Units:   []policy.Capacity{{Unit: unit, Capacity: l.Unit(unit).Used() + free}},
		Amounts: []policy.Amount{{Unit: unit, Amount: seats}},
	}
}

// used returns the sum of the claims over all units.
func used(l *snapshot.Ledger) int64 {
	var sum int64
	if l != nil {
		for i := range l.Units {
			sum = snapshot.AddAmounts(sum, l.Units[i].Used())
		}
	}
	return sum
}

// held returns what the pod holds, all of one unit.
func held(l *snapshot.Ledger, uid types.UID) int64 {
	for i := range l.Units {
		claims := l.Units[i].Claims
		if at, ok := slices.BinarySearchFunc(claims, uid, func(c snapshot.LedgerClaim, uid types.UID) int {
			return strings.Compare(string(c.Pod), string(uid))
		}); ok {
			return claims[at].Amount
		}
	}
	return 0
}

// claimedBefore returns the sum of the claims made at or before the time.
func claimedBefore(l *snapshot.Ledger, latest time.Time) int64 {
	sum := used(l)
	if l != nil {
		for _, p := range slices.Backward(l.Pods) { // the latest one first
			if !p.At.After(latest) {
				break
			}
			sum -= held(l, p.UID)
		}
	}
	return sum
}

// claimedIn returns the sum of the claims of pods in the namespace.
func claimedIn(l *snapshot.Ledger, namespace string) int64 {
	var sum int64
	if l != nil {
		for i := range l.Pods {
			if l.Pods[i].Namespace == namespace {
				sum = snapshot.AddAmounts(sum, held(l, l.Pods[i].UID))
			}
		}
	}
	return sum
}

// claimedByNode returns the sums of the claims by the node to which the pods are, or will be, bound.
func claimedByNode(l *snapshot.Ledger) map[string]int64 {
	sums := map[string]int64{}
	if l != nil {
		for i := range l.Pods {
			sums[l.Pods[i].Node] = snapshot.AddAmounts(sums[l.Pods[i].Node], held(l, l.Pods[i].UID))
		}
	}
	return sums
}
