package equality

import (
	"reflect"
	"slices"
	"testing"

	"outboard.dev/outboard/internal/engine"
)

// counts counts what the cases cover, so that the test detects a generator that draws no interesting cases.
type counts struct {
	Cases        int // pods of the calls
	Failed       int // filter failed
	FitNowhere   int
	Rejected     int // nodes, with a reason
	Unresolvable int // rejections for which evicting pods would not help
	Shortlisted  int // filter returned the best of the nodes that fit
	Scored       int // several nodes had scores
	Distinct     int // and they differ
	Bound        int
	Annotated    int // with annotations of allocations
	Allocations  int // in ledgers
	NotBound     int // binding failed
	TooLarge     int // rejected because of the size of the pod
	Named        int // pods for which the plugin named nodes
	NamedInVain  int // and no named node was usable
}

func (c *counts) note(d decided) {
	c.Cases++
	if d.Error != "" {
		c.Failed++
		return
	}
	fit := 0
	for _, v := range d.Verdicts {
		if v.Reason == engine.PodTooLarge.Text {
			c.TooLarge++
		}
		switch {
		case v.Unresolvable:
			c.Unresolvable++
			c.Rejected++
		case v.Reason != "":
			c.Rejected++
		default:
			fit++
		}
	}
	if fit == 0 {
		c.FitNowhere++
	}
	if fit > len(d.Kept) {
		c.Shortlisted++
	}
	if len(d.Scores) < 2 {
		return
	}
	c.Scored++
	if len(best(d.Scores)) < len(d.Scores) {
		c.Distinct++
	}
}

// add adds the other counts.
func (c *counts) add(other counts) {
	sum, more := reflect.ValueOf(c).Elem(), reflect.ValueOf(other)
	for i := range sum.NumField() {
		sum.Field(i).SetInt(sum.Field(i).Int() + more.Field(i).Int())
	}
}

// check logs the counts, and fails if a compared event did not occur, except for the exceptions. Rare events only occur in many draws.
func (c *counts) check(t *testing.T, except ...string) {
	t.Helper()
	all := reflect.ValueOf(*c)
	for i := range all.NumField() {
		n, name := all.Field(i).Int(), all.Type().Field(i).Name
		t.Logf("%8d %s", n, name)
		if n == 0 && (drawsMany || name == "Bound") && !t.Failed() && !slices.Contains(except, name) {
			t.Errorf("%s never occurred", name)
		}
	}
}
