package engine

import "slices"

// MaxExtenderScore is the best score kube-scheduler expects of an extender.
const MaxExtenderScore int64 = 10

// ScaleScores replaces, in place, totals in 0..maxTotal with levels in 0..MaxExtenderScore,
// as the package documentation tells: a better node never gets a lower level,
// and the best never shares its level with a worse one. Totals out of range
// count as the nearest in range. With maxTotal 0 all levels are 0.
func ScaleScores(totals []int64, maxTotal int64) {
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
	level := func(total int64) int64 { return total * MaxExtenderScore / maxTotal }
	bestLevel := level(best)
	if second >= 0 && level(second) == bestLevel {
		bestLevel++ // at most MaxExtenderScore: only maxTotal itself has that level, and second is less
	}
	for i, total := range totals {
		if total == best {
			totals[i] = bestLevel
		} else {
			totals[i] = level(total)
		}
	}
}
