package devices

import (
	"cmp"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// books are what is known of who has what of a node.
type books struct {
	free     []int64 // of each unit, 0 or more
	partFree []int64 // of each part, at the index that stands for it
	// left is what can be given away in all. It may be less than the sum of free: of some
	// pods it is not known which units they have.
	left     int64
	mostFree int64 // of one part, not more than left
	holders  map[types.UID]struct{}
}

// booksOf counts with the given ledger, which may be nil, instead of the node's own. A pod
// in the ledger has what the ledger says, and any other on the node what it asks for: of
// the units in its annotation, if it has one. What pods have of units that the node does
// not list, or of units nobody knows, is missing from the node as a whole.
func (p *devices) booksOf(n *snapshot.Node, ledger *snapshot.Ledger, hw *hardware) books {
	b := books{holders: map[types.UID]struct{}{}}
	if ledger == nil {
		ledger = &snapshot.Ledger{}
	}
	used, unplaced := make([]int64, len(hw.units)), int64(0)
	for _, u := range ledger.Units {
		amount := u.Used()
		if i, ok := hw.index[u.Name]; !ok {
			unplaced = snapshot.AddAmounts(unplaced, amount)
		} else if used[i] = amount; len(u.Claims) >= snapshot.MaxUnitClaims {
			used[i] = math.MaxInt64
		}
		for _, claim := range u.Claims {
			b.holders[claim.Pod] = struct{}{}
		}
	}
	for _, pod := range n.Pods {
		if b.holds(pod.UID) {
			continue
		}
		if want := p.asked(pod); want > 0 {
			unplaced = snapshot.AddAmounts(unplaced, p.annotated(pod, want, hw, used))
			if pod.UID != "" {
				b.holders[pod.UID] = struct{}{}
			}
		}
	}
	b.sum(hw, used, unplaced)
	return b
}

// annotated adds to used what a pod that asks for want has of the units that its annotation
// names, and returns the rest. Where pods get shares of one unit and it names several, it
// has all of each.
func (p *devices) annotated(pod *corev1.Pod, want int64, hw *hardware, used []int64) (rest int64) {
	each := want
	if p.config.PodGets == WholeUnits {
		each = 1
	}
	rest = want
	names := strings.Split(pod.Annotations[p.annotation], ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
		if u, ok := hw.index[names[i]]; ok && !slices.Contains(names[:i], names[i]) {
			used[u] = snapshot.AddAmounts(used[u], each)
			rest -= min(rest, each)
		}
	}
	return rest
}

func (b *books) sum(hw *hardware, used []int64, unplaced int64) {
	b.free, b.partFree = make([]int64, len(hw.units)), make([]int64, len(hw.units))
	for i, u := range hw.units {
		b.free[i] = max(0, u.capacity-used[i])
		b.partFree[u.part] += b.free[i]
		b.left += b.free[i]
		b.mostFree = max(b.mostFree, b.partFree[u.part])
	}
	b.left = max(0, b.left-unplaced)
	b.mostFree = min(b.mostFree, b.left)
}

// holds says whether the pod has something of the node already.
func (b *books) holds(uid types.UID) bool {
	_, ok := b.holders[uid]
	return ok
}

// choose returns what a pod gets that fits: all of one part, if it can be, and of the part
// that the strategy prefers, or else of as few as possible.
func (p *devices) choose(want int64, hw *hardware, b *books) []policy.Amount {
	var parts []int
	for i, u := range hw.units {
		if u.part == i {
			parts = append(parts, i)
		}
	}
	slices.SortStableFunc(parts, func(i, j int) int {
		more := cmp.Compare(b.partFree[j], b.partFree[i])
		if p.config.Strategy == Binpack && b.partFree[i] >= want && b.partFree[j] >= want {
			return -more
		}
		return more
	})
	given := make([]int64, len(hw.units))
	for _, part := range parts {
		for i, u := range hw.units {
			if u.part == part {
				given[i] = min(want, b.free[i])
				want -= given[i]
			}
		}
	}
	var amounts []policy.Amount
	for i, amount := range given {
		if amount > 0 {
			amounts = append(amounts, policy.Amount{Unit: hw.units[i].name, Amount: amount})
		}
	}
	return amounts
}
