package devices

import (
	"cmp"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/claims"
	"outboard.dev/outboard/snapshot"
)

// usage is what pods hold of a node.
type usage struct {
	free     []int64 // of each unit, 0 or more
	partFree []int64 // of each part, at the index that identifies it
	// left is what can be allocated in total. It may be less than the sum of free, because the
	// units of some pods are unknown.
	left     int64
	mostFree int64 // of one part, not more than left
	holders  claims.Holders
}

// usageOf computes the usage with the given ledger, which may be nil, instead of the node's own. A
// pod in the ledger holds what the ledger says, and any other pod on the node what it requests: of
// the units in its annotation, if it has one. What pods hold of unlisted or unknown units is
// subtracted from the node as a whole.
func (p *devices) usageOf(n *snapshot.Node, ledger *snapshot.Ledger, hw *hardware) usage {
	var u usage
	claimants, unclaimed := claims.On(n, ledger)
	for uid := range claimants {
		u.holders.Add(uid)
	}
	used, unplaced := make([]int64, len(hw.units)), int64(0)
	if ledger != nil {
		for i := range ledger.Units {
			unit := &ledger.Units[i]
			if at, ok := hw.index[unit.Name]; !ok {
				unplaced = snapshot.AddAmounts(unplaced, unit.Used())
			} else if used[at] = unit.Used(); len(unit.Claims) >= snapshot.MaxUnitClaims {
				used[at] = math.MaxInt64
			}
		}
	}
	for _, pod := range unclaimed {
		if want := p.requested(pod); want > 0 {
			unplaced = snapshot.AddAmounts(unplaced, p.annotated(pod, want, hw, used))
			u.holders.Add(pod.UID)
		}
	}
	u.sum(hw, used, unplaced)
	return u
}

// annotated adds to used what a pod that requests want holds of the units in its annotation, and
// returns the rest. If pods get shares of one unit and the annotation names several, the pod holds
// want of each.
func (p *devices) annotated(pod *corev1.Pod, want int64, hw *hardware, used []int64) (rest int64) {
	rest = want
	each := p.each(want)
	for _, u := range p.named(pod, hw) {
		used[u] = snapshot.AddAmounts(used[u], each)
		rest -= min(rest, each)
	}
	return rest
}

// each returns what a pod that requests want holds of each unit in its annotation.
func (p *devices) each(want int64) int64 {
	if p.config.AllocationMode == WholeUnits {
		return 1
	}
	return want
}

// named returns the units of the node in the pod's annotation, without duplicates.
func (p *devices) named(pod *corev1.Pod, hw *hardware) []int {
	var units []int
	for name := range strings.SplitSeq(pod.Annotations[p.annotation], ",") {
		if u, ok := hw.index[strings.TrimSpace(name)]; ok && !slices.Contains(units, u) {
			units = append(units, u)
		}
	}
	return units
}

func (u *usage) sum(hw *hardware, used []int64, unplaced int64) {
	u.free, u.partFree = make([]int64, len(hw.units)), make([]int64, len(hw.units))
	for i, unit := range hw.units {
		u.free[i] = max(0, unit.capacity-used[i])
		u.partFree[unit.part] += u.free[i]
		u.left += u.free[i]
		u.mostFree = max(u.mostFree, u.partFree[unit.part])
	}
	u.left = max(0, u.left-unplaced)
	u.mostFree = min(u.mostFree, u.left)
}

// choose returns what a pod that fits gets: everything from the part that the strategy prefers, if
// one part is enough, and otherwise from as few parts as possible.
func (p *devices) choose(want int64, hw *hardware, u *usage) []policy.Amount {
	var parts []int
	for i, unit := range hw.units {
		if unit.part == i {
			parts = append(parts, i)
		}
	}
	slices.SortStableFunc(parts, func(i, j int) int {
		more := cmp.Compare(u.partFree[j], u.partFree[i])
		if p.config.ScoringStrategy.Type == policy.BinPack && u.partFree[i] >= want && u.partFree[j] >= want {
			return -more
		}
		return more
	})
	given := make([]int64, len(hw.units))
	for _, part := range parts {
		for i, unit := range hw.units {
			if unit.part == part {
				given[i] = min(want, u.free[i])
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
