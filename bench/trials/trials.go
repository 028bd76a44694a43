// Package trials has what the measuring programs share: arms that take turns, the figures of their rounds, tables, and
// processes that serve an arm.
package trials

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Turn returns the arms in the order of a turn: each begins one turn in len(arms), so that none always follows the same load.
func Turn[A any](arms []A, turn int) []A {
	first := turn % len(arms)
	return append(slices.Clone(arms[first:]), arms[:first]...)
}

// Matching returns the arms whose names contain the text. None is an error.
func Matching[A any](arms []A, text string, name func(A) string) ([]A, error) {
	matching := slices.DeleteFunc(slices.Clone(arms), func(a A) bool { return !strings.Contains(name(a), text) })
	if len(matching) == 0 {
		names := make([]string, len(arms))
		for i, a := range arms {
			names[i] = name(a)
		}
		return nil, fmt.Errorf("nothing to measure has %q in its name, there are: %s", text, strings.Join(names, "; "))
	}
	return matching, nil
}

// Quantile returns the quantile of sorted values, of which there is at least one.
func Quantile[T cmp.Ordered](sorted []T, q float64) T { return sorted[int(q*float64(len(sorted)-1))] }

// Figures are what one figure was in each round.
type Figures []float64

// Median returns the median as text in the format, or – without figures.
func (f Figures) Median(format string) string {
	if len(f) == 0 {
		return "–"
	}
	sorted := slices.Sorted(slices.Values(f))
	n := len(sorted)
	return fmt.Sprintf(format, (sorted[(n-1)/2]+sorted[n/2])/2)
}

// Spread returns the median and the range of the figures as text in the format, or – without figures.
func (f Figures) Spread(format string) string {
	if len(f) == 0 {
		return "–"
	}
	return fmt.Sprintf("%s ["+format+"–"+format+"]", f.Median(format), slices.Min(f), slices.Max(f))
}

// Mean returns the mean and the standard deviation of the figures.
func (f Figures) Mean() (mean, deviation float64) {
	for _, v := range f {
		mean += v / float64(len(f))
	}
	for _, v := range f {
		deviation += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(deviation / float64(max(1, len(f)-1)))
}

// Text returns the mean and the standard deviation with so many digits; "none" without figures.
func (f Figures) Text(digits int) string {
	if len(f) == 0 {
		return "none"
	}
	mean, deviation := f.Mean()
	return fmt.Sprintf("%.*f±%.*f", digits, mean, digits, deviation)
}

// Table is a table of results as text.
type Table struct{ out *tabwriter.Writer }

// NewTable returns a table with a header. Nothing is printed before Flush.
func NewTable(out io.Writer, header ...string) *Table {
	t := &Table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	fmt.Fprintln(t.out, strings.Join(header, "\t"))
	return t
}

// Row adds a row.
func (t *Table) Row(cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(t.out, "\t")
		}
		fmt.Fprint(t.out, cell)
	}
	fmt.Fprintln(t.out)
}

// Flush prints the table.
func (t *Table) Flush() error { return t.out.Flush() }
