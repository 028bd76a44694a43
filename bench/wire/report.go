package main

import (
	"fmt"
	"io"

	"outboard.dev/outboard/bench/trials"
)

// report prints what each arm spends on a filter call, a prioritize call and both, and as a part of what the first arm spends on
// both: the median of the rounds, and their range.
func report(out io.Writer, calls, names int, arms []*arm) error {
	fmt.Fprintf(out, "%d recorded calls of %d names, %d rounds; processor time in µs, median [range]\n", calls, names, len(arms[0].rounds))
	table := trials.NewTable(out, "", "filter", "prioritize", "pair", "pair ÷ "+arms[0].name, "pair ÷ "+arms[1].name, "bytes answered")
	for _, a := range arms {
		figures := func(figure func(spent spent, round int) float64) (all trials.Figures) {
			for round, spent := range a.rounds {
				all = append(all, figure(spent, round))
			}
			return all
		}
		table.Row(a.name,
			figures(func(s spent, _ int) float64 { return s.filter / 1e3 }).Spread("%.0f"),
			figures(func(s spent, _ int) float64 { return s.prioritize / 1e3 }).Spread("%.0f"),
			figures(func(s spent, _ int) float64 { return s.pair() / 1e3 }).Spread("%.0f"),
			figures(func(s spent, round int) float64 { return s.pair() / arms[0].rounds[round].pair() }).Spread("%.2f"),
			figures(func(s spent, round int) float64 { return s.pair() / arms[1].rounds[round].pair() }).Spread("%.2f"),
			fmt.Sprintf("%d + %d", a.sizes[0], a.sizes[1]))
	}
	return table.Flush()
}
