package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// report prints what each arm spends on a filter call, a prioritize call and both, and as a part of what the first arm spends on
// both: the median of the rounds, and their range.
func report(out io.Writer, calls, names int, arms []*arm) error {
	fmt.Fprintf(out, "%d recorded calls of %d names, %d rounds; processor time in µs, median [range]\n", calls, names, len(arms[0].rounds))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\tfilter\tprioritize\tpair\tpair ÷ %s\tpair ÷ %s\tbytes answered\n", arms[0].name, arms[1].name)
	for _, a := range arms {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d + %d\n", a.name,
			a.median("%.0f", func(r int) float64 { return a.rounds[r].filter / 1e3 }),
			a.median("%.0f", func(r int) float64 { return a.rounds[r].prioritize / 1e3 }),
			a.median("%.0f", func(r int) float64 { return a.rounds[r].pair() / 1e3 }),
			a.median("%.2f", func(r int) float64 { return a.rounds[r].pair() / arms[0].rounds[r].pair() }),
			a.median("%.2f", func(r int) float64 { return a.rounds[r].pair() / arms[1].rounds[r].pair() }),
			a.sizes[0], a.sizes[1])
	}
	return w.Flush()
}

// median is the median of a figure over the rounds, with its range.
func (a *arm) median(format string, figure func(round int) float64) string {
	figures := make([]float64, len(a.rounds))
	for r := range figures {
		figures[r] = figure(r)
	}
	slices.Sort(figures)
	return fmt.Sprintf(format+" ["+format+"–"+format+"]", figures[len(figures)/2], figures[0], figures[len(figures)-1])
}
