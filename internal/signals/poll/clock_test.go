package poll_test

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"outboard.dev/outboard/internal/signals/poll"
	"outboard.dev/outboard/signal"
)

// The clock in the options determines the times and ages of values, because the clock of this
// process may be wrong. A value without its own time has the time of the start of its reading.
func TestValuesAreDatedByTheClock(t *testing.T) {
	for name, behind := range map[string]time.Duration{"right": 0, "an hour behind": time.Hour, "an hour ahead": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBoard()
				now := func() time.Time { return time.Now().Add(behind) }
				began := now()
				slow := &source{read: func(context.Context) ([]signal.Sample, error) {
					time.Sleep(5 * time.Second)
					return []signal.Sample{{Key: "plain", Number: 1}, {Key: "own", Number: 2, At: began.Add(time.Second)}, {Key: "future", Number: 3, At: began.Add(time.Hour)}}, nil
				}}
				f := signalOf("s", slow)
				f.Settings.Interval, f.Settings.MaxAge, f.Settings.Timeout = time.Hour, time.Minute, 10*time.Second
				m, err := poll.New(poll.Options{Publisher: b, Now: now, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
				if err != nil {
					t.Fatal(err)
				}
				m.SetSignals([]poll.Signal{f})
				go m.Run(t.Context())
				after(5 * time.Second)
				for key, want := range map[string]time.Duration{"plain": 0, "own": time.Second, "future": 5 * time.Second} {
					if got := b.View().Signal("s").Get(key).At.Sub(began); got != want {
						t.Errorf("%s is from %v after the reading began, want %v", key, got, want)
					}
				}
				after(55*time.Second - time.Millisecond)
				expect(t, "a moment before", b.show("s"), "future=3 own=2 plain=1")
				after(time.Millisecond)
				expect(t, "when the first is too old", b.show("s"), "future=3 own=2 plain=1?")
			})
		})
	}
}
