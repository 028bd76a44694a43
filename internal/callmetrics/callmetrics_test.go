package callmetrics_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/decision"
)

// expect compares all series with lines of name, label values in order of the label names, and value: that of a counter, or the
// number and the sum of the observations of a histogram.
func expect(t *testing.T, r *prometheus.Registry, want ...string) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			line := strings.TrimPrefix(family.GetName(), "outboard_")
			for _, label := range m.GetLabel() {
				line += " " + label.GetValue()
			}
			if h := m.GetHistogram(); h != nil {
				line += fmt.Sprintf(": %d, %g", h.GetSampleCount(), h.GetSampleSum())
			} else {
				line += fmt.Sprintf(": %g", m.GetCounter().GetValue())
			}
			got = append(got, line)
		}
	}
	if got, want := strings.Join(got, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestObserve(t *testing.T) {
	record := &decision.Record{
		Nodes:      5,
		Rejections: []decision.Rejection{{Policy: "GPUMemory", Code: "TooFewGPUs", Nodes: 3}, {Code: "NodeUnknown", Nodes: 1}},
		Policies: []decision.Policy{
			{Name: "GPUMemory", Duration: 2 * time.Second}, {Name: "PodLimit"},
			{Name: "Cost", Duration: time.Second, IgnoredError: "no price"},
		},
	}
	for _, tc := range []struct {
		name   string
		verb   decision.Verb
		record *decision.Record
		err    error
		want   []string // after two calls
	}{
		{"without a record", decision.Filter, nil, errors.New("no pod"), []string{"request_duration_seconds error / filter: 2, 8"}},
		{"filter", decision.Filter, record, nil, []string{
			"policy_duration_seconds Cost / filter: 2, 2", "policy_duration_seconds GPUMemory / filter: 2, 4",
			"policy_ignored_errors_total Cost /: 2",
			"rejected_nodes_total  / NodeUnknown: 2", "rejected_nodes_total GPUMemory / TooFewGPUs: 6",
			"request_duration_seconds success / filter: 2, 8",
		}},
		{"a call about no nodes counts", decision.Filter, &decision.Record{}, nil, []string{"request_duration_seconds success / filter: 2, 8"}},
		{"a failed call", decision.Prioritize, &decision.Record{Nodes: 7}, errors.New("canceled"), []string{"request_duration_seconds error / prioritize: 2, 8"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := prometheus.NewRegistry()
			m := callmetrics.New(r)
			expect(t, r)
			for range 2 {
				m.Observe("/", tc.verb, 4*time.Second, tc.record, tc.err)
			}
			expect(t, r, tc.want...)
		})
	}
}
