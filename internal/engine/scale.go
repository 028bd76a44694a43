package engine

import "slices"

// MaxExtenderScore is the largest score that kube-scheduler expects from an extender.
const MaxExtenderScore int64 = 10

// ScaleScores replaces totals in 0..maxTotal, in place, with levels in 0..maxScore, which is
// [MaxExtenderScore] or another maximum, by the rules in the package documentation: a better node
// never gets a lower level, and the best never shares its level with a worse one. Totals outside
// the range count as its nearest bound. With maxTotal 0 all levels are 0.
func ScaleScores(totals []int64, maxTotal, maxScore int64) {
	if maxTotal <= 0 || len(totals) == 0 {
		clear(totals)
		return
	}
	for i, total := range totals {
		totals[i] = min(max(total, 0), maxTotal)
	}
	level := func(total int64) int64 { return total * maxScore / maxTotal }
	best := slices.Max(totals)
	bestLevel := level(best)
	if slices.ContainsFunc(totals, func(total int64) bool { return total < best && level(total) == bestLevel }) {
		bestLevel++ // at most maxScore: only maxTotal itself has that level, and another total is less
	}
	for i, total := range totals {
		if total == best {
			totals[i] = bestLevel
		} else {
			totals[i] = level(total)
		}
	}
}
