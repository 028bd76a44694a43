package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"outboard.dev/outboard/bench/trials"
)

// result is the prediction for an arm, and its measurement.
type result struct {
	predicted prediction
	measured  measurement
}

// chance is the acceptable difference in standard deviations of the simulations: kube-scheduler selects a random
// one of equal nodes, so runs differ.
const chance = 3

// report writes the table, and returns an error with all unacceptable results.
func (o *options) report(results []result, out io.Writer) error {
	table := trials.NewTable(out, "", "allocated %", "predicted %", "difference", "first GPU pod rejected at %", "predicted %", "pods bound",
		"all tried after s", "at rest after s", "audit")
	var errs []error
	for i := range results {
		m, predicted, name := &results[i].measured, &results[i].predicted, o.arms[i].name
		mean, deviation := predicted.allocated.Mean()
		difference, may := m.allocated-mean, max(o.tolerance, chance*deviation)
		table.Row(name, fmt.Sprintf("%.2f", m.allocated), predicted.allocated.Text(2), fmt.Sprintf("%+.2f", difference),
			m.firstRejected(), predicted.first.Text(2), fmt.Sprintf("%d of %d", m.bound, m.pods),
			fmt.Sprintf("%.0f", m.tried.Seconds()), fmt.Sprintf("%.0f", m.rested.Seconds()), m.verdict())
		if m.audit != "" {
			errs = append(errs, fmt.Errorf("%s: the audit has findings:\n%s", name, m.audit))
		}
		if math.Abs(difference) > may {
			errs = append(errs, fmt.Errorf("%s: the result differs from the prediction by %+.2f points, more than %.2f", name, difference, may))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if err := o.reportCurves(results, out); err != nil {
		return err
	}
	for i := range results {
		m := &results[i].measured
		if m.claims != nil {
			fmt.Fprintf(out, "%s: of %d claims, %d were predicted (%.2f %%)\n", o.arms[i].name, m.claims.claims, m.claims.predicted, 100*float64(m.claims.predicted)/float64(max(1, m.claims.claims)))
			for _, what := range m.claims.different {
				fmt.Fprintf(out, "  %s\n", what)
			}
			if len(m.claims.different) > m.claims.claims/20 {
				errs = append(errs, fmt.Errorf("%s: more than 5 %% of the claims were not predicted", o.arms[i].name))
			}
		}
		fmt.Fprintf(out, "%s: kube-scheduler made %.0f attempts: %.0f found a node, %.0f did not, %.0f failed; pods that were rejected at first and bound later have %.2f %% of the GPUs\n",
			o.arms[i].name, m.attempts.scheduled+m.attempts.unschedulable+m.attempts.failed, m.attempts.scheduled, m.attempts.unschedulable, m.attempts.failed, m.late)
		if m.skipped > 0 {
			errs = append(errs, fmt.Errorf("%s: kube-scheduler placed %d pods without Outboard", o.arms[i].name, m.skipped))
		}
		for _, why := range slices.Sorted(maps.Keys(m.failures)) {
			fmt.Fprintf(out, "  %d calls of Outboard failed: %s\n", m.failures[why], why)
		}
	}
	return errors.Join(errs...)
}

// reportCurves writes what is allocated when pods have requested each of loads.
func (o *options) reportCurves(results []result, out io.Writer) error {
	header := []string{"allocated % when pods have requested %"}
	for _, load := range loads {
		header = append(header, fmt.Sprintf("%.0f", 100*load))
	}
	table := trials.NewTable(out, header...)
	for i := range results {
		measured, predicted := []any{o.arms[i].name}, []any{o.arms[i].name + ", predicted"}
		for j, load := range loads {
			if load > o.until {
				continue
			}
			measured = append(measured, fmt.Sprintf("%.2f", results[i].measured.curve[j]))
			predicted = append(predicted, results[i].predicted.curve[j].Text(2))
		}
		table.Row(measured...)
		table.Row(predicted...)
	}
	return table.Flush()
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
