package engine

import "slices"

// MaxLevel is the best score kube-scheduler expects of an extender.
const MaxLevel int64 = 10

// Levels replaces, in place, totals in 0..maxTotal with levels in 0..MaxLevel,
// as the package documentation tells: a better node never gets a lower level,
// and the best never shares its level with a worse one. Totals out of range
// count as the nearest in range. With maxTotal 0 all levels are 0.
func Levels(totals []int64, maxTotal int64) {
	if len(totals) == 0 {
		return
	}
	maxTotal = max(maxTotal, 0)
	for i, total := range totals {
		totals[i] = min(max(total, 0), maxTotal)
	}
	best, second := slices.Max(totals), int64(-1) // second is the best total below best
	if best == 0 {
		return
	}
	for _, total := range totals {
		if total < best {
			second = max(second, total)
		}
	}
	level := func(total int64) int64 { return total * MaxLevel / maxTotal }
	bestLevel := level(best)
	if second >= 0 && level(second) == bestLevel {
		bestLevel++ // at most MaxLevel: only maxTotal itself has that level, and second is less
	}
	for i, total := range totals {
		if total == best {
			totals[i] = bestLevel
		} else {
			totals[i] = level(total)
		}
	}
}
