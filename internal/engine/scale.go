package engine

import "slices"

// MaxExtenderScore is the largest score that kube-scheduler expects from an extender.
const MaxExtenderScore int64 = 10

// ScaleScores replaces totals in 0..maxTotal, in place, with levels in 0..maxScore, which is
// [MaxExtenderScore] or another maximum, by the rules in the package documentation: a better node
// never gets a lower level, and the best never shares its level with a worse one. Totals outside
// the range count as its nearest bound. With maxTotal 0 all levels are 0.
func ScaleScores(totals []int64, maxTotal, maxScore int64) {
	if len(totals) == 0 {
		return
	}
	maxTotal = max(maxTotal, 0)
	for i, total := range totals {
		totals[i] = min(max(total, 0), maxTotal)
	}
	best, second := slices.Max(totals), int64(-1) // second is the largest total below best
	if best == 0 {
		return
	}
	for _, total := range totals {
		if total < best {
			second = max(second, total)
		}
	}
	level := func(total int64) int64 { return total * maxScore / maxTotal }
	bestLevel := level(best)
	if second >= 0 && level(second) == bestLevel {
		bestLevel++ // at most maxScore: only maxTotal itself has that level, and second is less
	}
	for i, total := range totals {
		if total == best {
			totals[i] = bestLevel
		} else {
			totals[i] = level(total)
		}
	}
}
