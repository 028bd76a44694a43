package licenses_test

import (
	"testing"
	"time"

	"outboard.dev/outboard/policies/licenses"
	"outboard.dev/outboard/policy/policytest"
)

// A replica that does not know the API server's time, and whose clock is behind, allocations seats that
// its reading does not include. Another replica with the same reading counts those seats.
func TestAllocationsAreLaterThanTheReading(t *testing.T) {
	p := policytest.Build(t, licenses.Type(), `{features: [{name: solver, server: {signal: flexnet, usedIncludesPods: true}}]}`)
	for _, skew := range []time.Duration{0, -10 * time.Minute, -time.Hour, time.Hour} {
		w := newWorld("a")
		w.signals = told(map[string]string{"solver/total": "10", "solver/used": "8"})
		w.now = policytest.Now.Add(time.Second).Add(skew)
		w.bind(t, p, needing("x", "first", "solver=2"), "a")
		expect(t, skew.String(), w.allocation(t, p, needing("x", "second", "solver=2"), "a"), "NoFreeSeat 0/2 seats")
	}
}

// A clock that was a year ahead, once, has no effect on the allocations that follow: the license server counts the seats of pods that have
// checked them out, and Outboard does not count these again.
func TestClockThatWasAheadOnce(t *testing.T) {
	p := policytest.Build(t, licenses.Type(), `{features: [{name: solver, server: {signal: flexnet, usedIncludesPods: true}}]}`)
	w := newWorld("a")
	w.signals = toldAt(policytest.Now.Add(-4*time.Hour), map[string]string{"solver/total": "2", "solver/used": "0"})
	w.now = policytest.Now.Add(-4*time.Hour + time.Second).Add(365 * 24 * time.Hour)
	w.bind(t, p, needing("x", "first", "solver=1"), "a")
	w.end("uid-x-first")
	w.now = policytest.Now.Add(-3 * time.Hour)
	w.bind(t, p, needing("x", "second", "solver=1"), "a")
	w.signals = told(map[string]string{"solver/total": "2", "solver/used": "1"})
	w.now = policytest.Now.Add(time.Second)
	if got := w.allocation(t, p, needing("x", "third", "solver=1"), "a"); got != "fits" {
		t.Errorf("one of two seats is used, and the next pod gets: %s", got)
	}
}
