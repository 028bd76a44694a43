package licenses_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policies/licenses"
	"outboard.dev/outboard/policy/policytest"
)

// replica is one of several that share the ledger. Each has its own clock, and reads the license
// server separately.
type replica struct {
	clock   *ledger.Clock
	signals string
}

// replicas is several replicas with wrong clocks.
type replicas struct {
	*simulation
	all []*replica
}

func (s *replicas) any(t *rapid.T) *replica { return rapid.SampledFrom(s.all).Draw(t, "replica") }

func (s *replicas) read(t *rapid.T) {
	r := s.any(t)
	r.signals = s.tell(r.clock.Earliest())
}

// hear handles a response of the API server, which arrives with a delay.
func (s *replicas) hear(t *rapid.T, r *replica, own func() time.Time) {
	sent := own()
	s.at = s.at.Add(time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "there")))
	date := s.at.Truncate(time.Second)
	s.at = s.at.Add(time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "back")))
	r.clock.Observe(date, sent, own())
}

func (s *replicas) claim(t *rapid.T) {
	s.next++
	r := s.any(t)
	s.at = s.at.Add(time.Millisecond)
	s.signals, s.now = r.signals, r.clock.Latest()
	name, seats := fmt.Sprintf("p%d", s.next), rapid.Int64Range(1, 4).Draw(t, "seats")
	pod := needing("x", name, fmt.Sprintf("solver=%d", seats))
	left := s.total - s.outside - s.claimed()
	switch fits := s.world.claim(s.t, s.policy, pod, "a") == "fits"; {
	case fits && seats > left:
		t.Fatalf("a pod got %d seats, and %d of %d were left", seats, left, s.total)
	case !fits:
		s.refused++
		return
	}
	s.handed++
	s.claims[name] = claim{seats: seats, at: s.at}
	pod.Spec.NodeName = "a"
	boundAt(pod, s.at)
	s.pods = append(s.pods, pod)
}

// Replicas whose clocks are an hour ahead or behind never allocate more than there is, even after
// the ledger is lost; and a replica assumes that a pod has checked out the seats that another
// replica claimed only if the pod has.
func TestNeverOverallocatedByWrongClocks(t *testing.T) {
	handed, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		s := &replicas{simulation: &simulation{
			world: newWorld("a"), t: t, includesPods: true, claims: map[string]claim{},
			total: rapid.Int64Range(1, 20).Draw(rt, "total"), at: policytest.Now,
		}}
		s.policy = policytest.Build(t, licenses.Type(), `{features: [{name: solver, server: {signal: flexnet, usedIncludesPods: true}}]}`)
		var hears []func(*rapid.T)
		for range 2 {
			skew := time.Duration(rapid.Int64Range(-3600, 3600).Draw(rt, "skew")) * time.Second
			own := func() time.Time { return s.at.Add(skew) }
			r := &replica{clock: ledger.NewClock(own)}
			s.hear(rt, r, own)
			r.signals = s.tell(r.clock.Earliest())
			s.all = append(s.all, r)
			hears = append(hears, func(rt *rapid.T) { s.hear(rt, r, own) })
		}
		rt.Repeat(map[string]func(*rapid.T){
			"claim": s.claim, "claim2": s.claim, "end": s.endPod, "checkOut": s.checkOut, "wait": s.wait, "read": s.read, "read2": s.read,
			"lose": s.lose, "hear": func(rt *rapid.T) { rapid.SampledFrom(hears).Draw(rt, "whose")(rt) },
			"outside": func(rt *rapid.T) { // which the server reports to all at once
				s.moveOutside(rt)
				for _, r := range s.all {
					r.signals = s.tell(r.clock.Earliest())
				}
			},
		})
		handed, refused = handed+s.handed, refused+s.refused
	})
	if handed == 0 || refused == 0 {
		t.Errorf("%d claims succeeded, and %d were rejected: the test needs both", handed, refused)
	}
}

// A replica that does not know the API server's time, and whose clock is behind, claims seats that
// its reading does not include. Another replica with the same reading counts those seats.
func TestClaimsAreLaterThanTheReading(t *testing.T) {
	p := policytest.Build(t, licenses.Type(), `{features: [{name: solver, server: {signal: flexnet, usedIncludesPods: true}}]}`)
	for _, skew := range []time.Duration{0, -10 * time.Minute, -time.Hour, time.Hour} {
		w := newWorld("a")
		w.signals = told(map[string]string{"solver/total": "10", "solver/used": "8"})
		w.now = policytest.Now.Add(time.Second).Add(skew)
		w.bind(t, p, needing("x", "first", "solver=2"), "a")
		expect(t, skew.String(), w.claim(t, p, needing("x", "second", "solver=2"), "a"), "NoFreeSeat 0/2 seats")
	}
}

// A clock that was a year ahead, once, has no effect on the claims that follow: the license server counts the seats of pods that have
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
	if got := w.claim(t, p, needing("x", "third", "solver=1"), "a"); got != "fits" {
		t.Errorf("one of two seats is used, and the next pod gets: %s", got)
	}
}
