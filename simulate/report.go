package simulate

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"
)

// Arm is one set of policies, played with several seeds.
type Arm struct {
	Name     string
	Filled   []*Filled
	Replayed []*Replayed
}

// Marks are how much has arrived where a report tells what was allocated.
var Marks = []float64{.80, .90, .95, 1, 1.10, 1.20, 1.30}

// WriteFilled writes a table of how clusters filled up. gpus is how much there is of
// the resource, in the unit in which what is left unallocated is told.
func WriteFilled(w io.Writer, arms []Arm, until, gpus float64, unit string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "allocated % at arrived %\t")
	for _, mark := range Marks {
		if mark <= until {
			fmt.Fprintf(table, "%.0f\t", 100*mark)
		}
	}
	fmt.Fprintf(table, "first rejected at %%\tunallocated %s\trejected pods\n", unit)
	for _, arm := range arms {
		fmt.Fprintf(table, "%s\t", arm.Name)
		for _, mark := range Marks {
			if mark <= until {
				fmt.Fprintf(table, "%s\t", over(arm.Filled, 2, func(f *Filled) float64 { return 100 * f.At(mark) }))
			}
		}
		first := "none"
		if rejected := rejecting(arm.Filled); len(rejected) > 0 {
			first = over(rejected, 2, func(f *Filled) float64 { return 100 * f.FirstRejected })
			if len(rejected) < len(arm.Filled) {
				first += fmt.Sprintf(" (in %d of %d)", len(rejected), len(arm.Filled))
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", first,
			over(arm.Filled, 1, func(f *Filled) float64 { return gpus * (1 - f.Curve[len(f.Curve)-1].Allocated) }),
			over(arm.Filled, 0, func(f *Filled) float64 { return float64(f.Rejected) }))
	}
	return table.Flush()
}

func rejecting(all []*Filled) []*Filled {
	var some []*Filled
	for _, f := range all {
		if f.FirstRejected > 0 {
			some = append(some, f)
		}
	}
	return some
}

// WriteReplayed writes a table of how pods that come and go were served.
func WriteReplayed(w io.Writer, arms []Arm) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tdemanded %\tserved %\tpods\tdelayed %\tmean wait\twaiting at the end")
	for _, arm := range arms {
		wait := over(arm.Replayed, 2, func(r *Replayed) float64 { return r.Waited.Seconds() })
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s s\t%s\n", arm.Name,
			over(arm.Replayed, 2, func(r *Replayed) float64 { return 100 * r.Demanded }),
			over(arm.Replayed, 2, func(r *Replayed) float64 { return 100 * r.Served }),
			over(arm.Replayed, 0, func(r *Replayed) float64 { return float64(r.Pods) }),
			over(arm.Replayed, 2, func(r *Replayed) float64 { return 100 * float64(r.Delayed) / math.Max(1, float64(r.Pods)) }),
			wait, over(arm.Replayed, 1, func(r *Replayed) float64 { return float64(r.Waiting) }))
	}
	return table.Flush()
}

// over tells the mean, and with several values their standard deviation.
func over[T any](all []T, digits int, value func(T) float64) string {
	sum, squares := 0.0, 0.0
	for _, one := range all {
		sum += value(one)
	}
	mean := sum / float64(len(all))
	if len(all) == 1 {
		return fmt.Sprintf("%.*f", digits, mean)
	}
	for _, one := range all {
		squares += (value(one) - mean) * (value(one) - mean)
	}
	return fmt.Sprintf("%.*f±%.*f", digits, mean, digits, math.Sqrt(squares/float64(len(all)-1)))
}

// Progress tells, on one line, how far a simulation is; but only now and then.
type Progress struct {
	W io.Writer
	// Every is the least time between two lines, by Now.
	Every time.Duration
	Now   func() time.Time
	last  time.Time
}

// Of returns what tells the progress of what has the name.
func (p *Progress) Of(name string) func(part float64) {
	return func(part float64) {
		if now := p.Now(); now.Sub(p.last) >= p.Every {
			p.last = now
			fmt.Fprintf(p.W, "\r%s: %3.0f %%   ", name, 100*math.Min(1, part))
		}
	}
}

// Done ends the line.
func (p *Progress) Done(name, result string) {
	fmt.Fprintf(p.W, "\r%s: %s%s\n", name, result, strings.Repeat(" ", 12))
}
