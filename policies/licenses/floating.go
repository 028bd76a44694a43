package licenses

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/snapshot"
)

// unknownTime is later than every allocation.
var unknownTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// floatingSeats are the floating seats of a feature.
type floatingSeats struct {
	holders []holder
	// unknown is true if the number of seats, or of used seats, is not reported, or is too old to
	// count.
	unknown  bool
	total    int64 // all seats
	others   int64 // of these, used by others, as far as known
	reserved int64 // of these, not for pods
	held     int64 // by pods; together with others it may exceed total
	// nominated are the seats for nominated pods that come before the pod asking.
	nominated int64
	// reported is how many seats the server reports as used; zero if it does not count.
	reported snapshot.Value
	counted  bool // reported counts, although it may be stale
}

// holder is a pod that holds floating seats of a feature.
type holder struct {
	allocations.Held
	feature   *feature
	allocated bool      // in the ledger; otherwise the pod is on a node and requests the seats
	at        time.Time // when it allocated them, or a time before which it was bound
	node      string    // to which it is, or will be, bound
}

// floatingSeats counts the seats of the View for the pod asking, with the ledger, which may be nil,
// instead of the View's own. The pod's own seats count only if it has allocated them.
func (p *licenses) floatingSeats(f *feature, view *snapshot.View, ledger *snapshot.Ledger, asking *corev1.Pod) *floatingSeats {
	s := &floatingSeats{holders: p.holders(f, view, ledger, asking.UID), reserved: f.ReservedSeats, unknown: f.Seats == nil}
	s.held = s.sum(func(*holder) bool { return true })
	if f.Seats != nil {
		s.total = *f.Seats
	}
	if f.Server != nil {
		p.read(f, view.Signal(f.Server.Signal), s)
	}
	s.nominated = p.nominatedSeats(f, asking, view, s)
	return s
}

// read adds what the server reports.
func (p *licenses) read(f *feature, signal *snapshot.Signal, s *floatingSeats) {
	counts := func(v snapshot.Value) bool { return v.Current() || !v.At.IsZero() && p.whenStale == policy.Neutral }
	if v := signal.Get(f.totalKey); counts(v) {
		s.total, s.unknown = whole(math.Floor(v.Number)), false
	}
	s.reported = signal.Get(f.usedKey)
	if s.counted = counts(s.reported); s.counted {
		s.others = whole(math.Ceil(s.reported.Number))
	} else if p.whenStale == policy.Reject {
		s.unknown = true
	}
	if f.Server.UsedIncludesPods {
		latest := s.reported.At.Add(-f.Server.checkoutDelay())
		s.others = max(0, s.others-s.sum(func(h *holder) bool { return !h.at.After(latest) }))
	}
}

// whole converts a number of seats in a signal.
func whole(n float64) int64 { return int64(min(maxSeats, max(0, n))) }

// holders counts each pod once: with its allocation if it has one, and otherwise with what it
// requests, up to the limit of its namespace, because every user who creates pods sets their
// requests.
func (p *licenses) holders(f *feature, view *snapshot.View, ledger *snapshot.Ledger, own types.UID) []holder {
	var all, bound []holder
	entries := map[types.UID]*snapshot.LedgerPod{own: nil} // of pods that are not counted again
	if ledger != nil {
		all = make([]holder, 0, len(ledger.Pods))
		for i := range ledger.Pods {
			entries[ledger.Pods[i].UID] = &ledger.Pods[i]
		}
		for i := range ledger.Units {
			for _, c := range ledger.Units[i].Allocations {
				h := holder{Held: allocations.Held{Holder: allocations.Holder{UID: c.Pod}, Amount: c.Amount}, feature: f, allocated: true}
				if e := entries[c.Pod]; e != nil {
					h.Namespace, h.Name, h.at, h.node = e.Namespace, e.Name, e.At, e.Node
				}
				all = append(all, h)
			}
		}
	}
	for n := range view.All() {
		for _, h := range *p.boundPods.Of(n) {
			if _, ok := entries[h.UID]; !ok && h.feature == f {
				bound = append(bound, h)
			}
		}
	}
	if f.MaxPerNamespace == nil {
		return append(all, bound...)
	}
	inNamespace := map[string]int64{}
	for i := range all {
		h := &all[i]
		inNamespace[h.Namespace] = snapshot.AddAmounts(inNamespace[h.Namespace], h.Amount)
	}
	slices.SortStableFunc(bound, func(a, b holder) int { return a.at.Compare(b.at) })
	for _, h := range bound {
		h.Amount = min(h.Amount, *f.MaxPerNamespace-inNamespace[h.Namespace])
		if h.Amount > 0 {
			inNamespace[h.Namespace] += h.Amount
			all = append(all, h)
		}
	}
	return all
}

// boundPodsOf lists the pods on a node that request floating seats, with what they request. A pod
// with an invalid request requests nothing.
func (p *licenses) boundPodsOf(n *snapshot.Node) []holder {
	var bound []holder
	for _, pod := range n.Pods {
		needs, _ := p.request(pod)
		at, known := snapshot.BoundBefore(pod)
		if !known {
			at = unknownTime
		}
		for _, need := range needs {
			if need.feature.floating() {
				held := allocations.Held{Holder: allocations.HolderOf(pod), Amount: need.seats}
				bound = append(bound, holder{Held: held, feature: need.feature, at: at, node: n.Name})
			}
		}
	}
	return bound
}

// nominatedSeats returns how many seats are needed by nominated pods that are at least as important
// as the pod asking, and hold none: pods were evicted to make room for them. A pod that needs more
// than there is does not count.
func (p *licenses) nominatedSeats(f *feature, asking *corev1.Pod, view *snapshot.View, s *floatingSeats) int64 {
	var sum int64
	for _, pod := range view.Nominated() {
		if pod.UID == asking.UID || corev1helpers.PodPriority(pod) < corev1helpers.PodPriority(asking) || s.has(pod.UID) {
			continue
		}
		needs, _ := p.request(pod)
		for _, need := range needs {
			if need.feature == f && need.seats <= s.total-s.reserved {
				sum = snapshot.AddAmounts(sum, need.seats)
			}
		}
	}
	return sum
}

// evaluate returns the verdict on whether there are seats for a pod of the namespace.
func (s *floatingSeats) evaluate(n need, namespace string) policy.Verdict {
	if most := max(0, s.total-s.reserved); s.unknown {
		return policy.Verdict{Reason: signalStale, Unresolvable: true}
	} else if n.seats > most {
		return policy.Verdict{Reason: tooFewSeats, Unresolvable: true, Have: most, Want: n.seats}
	}
	if limit := n.feature.MaxPerNamespace; limit != nil {
		left := max(0, *limit-s.sum(func(h *holder) bool { return h.Namespace == namespace }))
		if n.seats > left {
			return policy.Verdict{Reason: namespaceLimit, Unresolvable: true, Have: left, Want: n.seats}
		}
	}
	if n.seats > s.free() {
		return policy.Verdict{Reason: noFreeSeat, Have: max(0, s.free()), Want: n.seats}
	}
	return policy.Verdict{}
}

// capacity returns how many seats pods can have.
func (s *floatingSeats) capacity() int64 { return max(0, s.total-s.reserved-s.others) }

// free returns what is left; less than 0 if there are fewer seats than were allocated.
func (s *floatingSeats) free() int64 { return s.capacity() - s.held - s.nominated }

func (s *floatingSeats) has(pod types.UID) bool {
	return pod != "" && slices.ContainsFunc(s.holders, func(h holder) bool { return h.UID == pod })
}

// sum returns what the holders for which the function returns true hold together.
func (s *floatingSeats) sum(counts func(*holder) bool) (seats int64) {
	for i := range s.holders {
		if counts(&s.holders[i]) {
			seats = snapshot.AddAmounts(seats, s.holders[i].Amount)
		}
	}
	return seats
}
