package devices

import (
	"slices"

	"outboard.dev/outboard/policy"
)

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
		if u.partFree[i] >= want && u.partFree[j] >= want {
			return p.config.ScoringStrategy.Type.Compare(u.partFree[i], u.partFree[j])
		}
		return policy.Spread.Compare(u.partFree[i], u.partFree[j]) // as few parts as possible
	})
	given := make([]int64, len(hw.units))
	for _, part := range parts {
		for i, unit := range hw.units {
			if unit.part == part {
				given[i] = min(want, u.free(i))
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
