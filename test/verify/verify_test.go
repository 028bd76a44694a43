package main

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAGoodExtenderKeepsEveryRule(t *testing.T) {
	report := mustRun(t, allVerbs(serve(t, &extender{})))
	if ids := broken(report); len(ids) > 0 {
		t.Errorf("fails %v\n%s", ids, text(t, report))
	}
}
