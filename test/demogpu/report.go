package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"text/tabwriter"
)

// result is the prediction for an arm, and its measurement.
type result struct {
	predicted prediction
	measured  measurement
}

// difference returns measured minus predicted allocation, in percentage points.
func (r *result) difference() float64 { return r.measured.allocated - r.predicted.allocated.mean }

// chance is the acceptable difference in standard deviations of the simulations: kube-scheduler selects a random
// one of equal nodes, so runs differ.
const chance = 3

// report writes the table, and returns an error with all unacceptable results.
func (o *options) report(results []result, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tallocated %\tpredicted %\tdifference\tfirst GPU pod rejected at %\tpredicted %\tpods bound\tall tried after s\tat rest after s\taudit")
	var errs []error
	for i := range results {
		m, name := &results[i].measured, o.arms[i].name
		fmt.Fprintf(table, "%s\t%.2f\t%s\t%+.2f\t%s\t%s\t%d of %d\t%.0f\t%.0f\t%s\n", name, m.allocated, results[i].predicted.allocated, results[i].difference(),
			m.firstRejected(), results[i].predicted.first, m.bound, m.pods, m.tried.Seconds(), m.rested.Seconds(), m.verdict())
		errs = append(errs, o.check(name, &results[i]))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for i := range results {
		m := &results[i].measured
		fmt.Fprintf(out, "%s: kube-scheduler made %d attempts: %d found a node, %d did not, %d failed; pods that were rejected at first and bound later have %.2f %% of the GPUs\n",
			o.arms[i].name, m.attempts.scheduled+m.attempts.unschedulable+m.attempts.failed, m.attempts.scheduled, m.attempts.unschedulable, m.attempts.failed, m.late)
		for _, why := range slices.Sorted(maps.Keys(m.failures)) {
			fmt.Fprintf(out, "  %d calls of Outboard failed: %s\n", m.failures[why], why)
		}
	}
	return errors.Join(errs...)
}

// check returns an error if the result is not acceptable.
func (o *options) check(name string, r *result) error {
	var errs []error
	if r.measured.audit != "" {
		errs = append(errs, fmt.Errorf("%s: the audit has findings:\n%s", name, r.measured.audit))
	}
	if d, may := r.difference(), math.Max(o.tolerance, chance*r.predicted.allocated.deviation); math.Abs(d) > may {
		errs = append(errs, fmt.Errorf("%s: the result differs from the prediction by %+.2f points, more than %.2f", name, d, may))
	}
	return errors.Join(errs...)
}

func (m *measurement) firstRejected() string {
	if !m.anyRejected {
		return "none"
	}
	return fmt.Sprintf("%.2f", m.first)
}

func (m *measurement) verdict() string {
	if m.audit != "" {
		return "FAILED"
	}
	return "no findings"
}
