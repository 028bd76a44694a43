package ledger_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/ledger"
)

// For any clock of this process, and any change of it, the API server's time is between the bounds,
// and the bounds are as close as a response permits.
func TestClockBoundsTheAPIServersTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "moment")))
		skew := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "skew"))
		own := func() time.Time { return truth.Add(skew) }
		c := ledger.NewClock(own)
		if !c.Earliest().Equal(own()) || !c.Latest().Equal(own()) {
			t.Fatalf("before the first response the clock returns %v to %v, want %v", c.Earliest(), c.Latest(), own())
		}
		pass := func(most time.Duration, label string) time.Duration {
			d := time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, label))
			truth = truth.Add(d)
			return d
		}
		respond := func() (took time.Duration) {
			sent := own()
			took = pass(3*time.Second, "there")
			date := truth.Truncate(time.Second)
			took += pass(3*time.Second, "back")
			c.Observe(date, sent, own())
			return took
		}
		for range rapid.IntRange(1, 20).Draw(t, "answers") {
			pass(time.Minute, "pause")
			took := respond()
			pass(time.Minute, "later")
			if c.Earliest().After(truth) || c.Latest().Before(truth) {
				t.Fatalf("the time is %v, and the clock returns %v to %v", truth, c.Earliest(), c.Latest())
			}
			if apart := c.Latest().Sub(c.Earliest()); apart > time.Second+took {
				t.Fatalf("the bounds are %v apart after a response that took %v", apart, took)
			}
		}
		// The clock detects small steps, within the precision of the dates, only when their sum is
		// large.
		skew += time.Duration(rapid.SampledFrom([]int64{-1, 1}).Draw(t, "direction")) * time.Duration(rapid.Int64Range(int64(10*time.Second), int64(time.Hour)).Draw(t, "set"))
		respond()
		if c.Earliest().After(truth) || c.Latest().Before(truth) {
			t.Fatalf("after a change of the clock the time is %v, and the clock returns %v to %v", truth, c.Earliest(), c.Latest())
		}
	})
}
