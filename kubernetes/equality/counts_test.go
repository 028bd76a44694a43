package equality

import (
	"reflect"
	"slices"
	"testing"

	"outboard.dev/outboard/config"
)

// counts says what the cases were about, so that a generator that draws nothing of interest is noticed.
type counts struct {
	Cases        int // pods that were asked about
	Failed       int // filter failed
	FitNowhere   int
	Rejected     int // nodes, with a reason
	Unresolvable int // those of them for which evicting pods would not help
	Shortlisted  int // filter returned the best of those that fit
	Scored       int // several nodes had scores
	Distinct     int // and not all the same
	Levels       int // and these were sent as levels
	Bound        int
	Annotated    int // with annotations of claims
	Claims       int // in ledgers
	NotBound     int // binding failed
}

func (c *counts) note(d decided, profile *config.Profile) {
	c.Cases++
	if d.Error != "" {
		c.Failed++
		return
	}
	fit := 0
	for _, v := range d.Verdicts {
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
		if profile.ScoreRange == config.ExtenderRange {
			c.Levels++
		}
	}
}

// add adds the other counts.
func (c *counts) add(other counts) {
	sum, more := reflect.ValueOf(c).Elem(), reflect.ValueOf(other)
	for i := range sum.NumField() {
		sum.Field(i).SetInt(sum.Field(i).Int() + more.Field(i).Int())
	}
}

// check logs the counts, and fails if something that should be compared did not occur, but for the exceptions.
func (c *counts) check(t *testing.T, except ...string) {
	t.Helper()
	all := reflect.ValueOf(*c)
	for i := range all.NumField() {
		n, name := all.Field(i).Int(), all.Type().Field(i).Name
		t.Logf("%8d %s", n, name)
		if n == 0 && !t.Failed() && !slices.Contains(except, name) {
			t.Errorf("%s never occurred", name)
		}
	}
}
