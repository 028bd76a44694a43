package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A client holds room in a test. end ends it at once.
type client struct {
	hold  hold
	since time.Time // when it began to wait for its client; zero: it does not wait
	ended atomic.Bool
	room  *room
}

func (c *client) waits(now time.Time) time.Duration {
	if c.since.IsZero() {
		return -1
	}
	return now.Sub(c.since)
}

func (c *client) end() {
	c.ended.Store(true)
	c.room.release(&c.hold)
}

// TestRoomIsShared plays histories. The names of requests begin with the name of their caller. A step is
//
//	A1 takes 40   the request asks for an amount
//	A1 waits      it waits for its client from now on
//	A1 ends       it releases what it holds
//	A1 rests 1s   its caller rests
//	10s           time passes
//
// and after the step follow the requests that hold the room.
func TestRoomIsShared(t *testing.T) {
	for name, history := range map[string][]string{
		"a caller alone may hold all":           {"A1 takes 60: A1", "A2 takes 40: A1 A2"},
		"what is free needs no yielding":        {"A1 takes 60: A1", "A1 waits: A1", "B1 takes 40: A1 B1"},
		"more than there is means all":          {"A1 takes 1000: A1", "B1 takes 1: A1", "A1 ends: B1"},
		"the oldest of a caller is first":       {"A1 takes 100: A1", "A2 takes 100: A1", "A3 takes 100: A1", "A1 ends: A2", "A2 ends: A3"},
		"a request that is served is not ended": {"A1 takes 100: A1", "B1 takes 1: A1", "1h: A1", "A1 ends: B1"},
		"another caller yields at once, first what has waited longest": {
			"A1 takes 50: A1", "A1 waits: A1", "1s: A1", "A2 takes 50: A1 A2", "A2 waits: A1 A2", "B1 takes 10: A2 B1"},
		"it yields when it begins to wait":  {"A1 takes 100: A1", "B1 takes 10: A1", "A1 waits: A1", "100ms: B1"},
		"as many yield as are needed":       {"A1 takes 30: A1", "A1 waits: A1", "1s: A1", "A2 takes 30: A1 A2", "A2 waits: A1 A2", "A3 takes 40: A1 A2 A3", "B1 takes 50: A3 B1"},
		"a caller does not yield its share": {"A1 takes 50: A1", "A1 waits: A1", "B1 takes 50: A1 B1", "B2 takes 10: A1 B1"},
		"who holds most yields":             {"A1 takes 30: A1", "A1 waits: A1", "1s: A1", "B1 takes 70: A1 B1", "B1 waits: A1 B1", "C1 takes 10: A1 C1"},
		"of equal holders, who used most":   {"A1 takes 50: A1", "A1 waits: A1", "9s: A1", "B1 takes 50: A1 B1", "B1 waits: A1 B1", "C1 takes 50: B1 C1"},
		"what holds its share yields later": {
			"A1 takes 90: A1", "B1 takes 10: A1 B1", "B1 waits: A1 B1", "C1 takes 10: A1 B1", "900ms: A1 B1", "200ms: A1 C1"},
		"a caller's own request yields later": {"A1 takes 100: A1", "A1 waits: A1", "A2 takes 10: A1", "900ms: A1", "200ms: A2"},
		"who used least is first": {
			"A1 takes 100: A1", "5s: A1", "A2 takes 100: A1", "B1 takes 100: A1", "A1 ends: B1", "B1 ends: A2"},
		"what was used long ago is forgotten": {
			"A1 takes 100: A1", "1m: A1", "A1 ends:", "35s:", "B1 takes 100: B1", "1s: B1", "A2 takes 100: B1", "B2 takes 100: B1", "B1 ends: A2"},
		"a large request is not passed by small ones of a caller that used more": {
			"A1 takes 50: A1", "5s: A1", "B1 takes 100: A1", "A2 takes 1: A1", "A1 ends: B1"},
		"a request yields to a small one and not to a larger one": {
			"A1 takes 60: A1", "A1 waits: A1", "B1 takes 61: A1", "B2 takes 60: A1", "A1 ends: B1"},
		"a caller that rests gets nothing until then, and nobody waits for it": {
			"A1 takes 10: A1", "A1 rests 500ms: A1", "A1 ends:", "A2 takes 10:", "B1 takes 100: B1", "B1 ends:", "400ms:", "150ms: A2"},
		"rests add up, but to at most a second": {
			"A1 takes 10: A1", "A1 rests 400ms: A1", "A1 rests 400ms: A1", "A2 takes 10: A1", "750ms: A1", "100ms: A1 A2",
			"A1 rests 900ms: A1 A2", "A1 rests 900ms: A1 A2", "A3 takes 10: A1 A2", "950ms: A1 A2", "100ms: A1 A2 A3"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 { // the order of callers in a map is random
				synctest.Test(t, func(t *testing.T) { play(t, history) })
			}
		})
	}
}

func play(t *testing.T, history []string) {
	r := newRoom("units", 100)
	r.slow = time.Second
	clients := map[string]*client{}
	ctx, cancel := context.WithCancel(t.Context())
	for _, line := range history {
		step, want, _ := strings.Cut(line, ":")
		words := strings.Fields(step)
		c := clients[words[0]]
		switch {
		case len(words) == 1:
			passes, err := time.ParseDuration(words[0])
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(passes)
		case words[1] == "takes":
			c = &client{room: r}
			if _, err := fmt.Sscan(words[2], &c.hold.amount); err != nil {
				t.Fatal(err)
			}
			c.hold.holder = c
			clients[words[0]] = c
			go func() {
				if !r.takeFree(&c.hold, words[0][:1]) {
					r.take(ctx, &c.hold, words[0][:1])
				}
			}()
		case words[1] == "waits":
			r.mu.Lock()
			c.since = time.Now()
			r.mu.Unlock()
		case words[1] == "ends":
			c.end()
		case words[1] == "rests":
			d, err := time.ParseDuration(words[2])
			if err != nil {
				t.Fatal(err)
			}
			r.rest(&c.hold, d)
		}
		synctest.Wait()
		var got []string
		r.mu.Lock()
		for name, c := range clients {
			if !c.ended.Load() && slices.Contains(c.hold.caller.holds, &c.hold) {
				got = append(got, name)
			}
		}
		r.mu.Unlock()
		slices.Sort(got)
		if strings.Join(got, " ") != strings.TrimSpace(want) {
			t.Fatalf("after %q hold: %q, want %q", step, got, strings.Fields(want))
		}
	}
	cancel()
}

// Whatever callers do, the room is never overfull, and everything is free in the end. A caller that asks for at most its share gets it at
// once if the others' requests wait for their clients.
func TestEachCallerGetsItsShare(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	rapid.Check(t, func(t *rapid.T) {
		const size = 1000
		r := newRoom("units", size)
		hostile := rapid.IntRange(1, 5).Draw(t, "hostile callers")
		var open []*client
		for range rapid.IntRange(0, 30).Draw(t, "requests") {
			c := &client{room: r, since: time.Now().Add(-time.Duration(rapid.IntRange(0, 10_000).Draw(t, "waits since")) * time.Millisecond)}
			c.hold = hold{amount: rapid.Int64Range(1, size).Draw(t, "amount"), holder: c}
			by := fmt.Sprint("hostile-", rapid.IntRange(1, hostile).Draw(t, "caller"))
			if r.take(over, &c.hold, by) {
				open = append(open, c)
			}
			if r.free < 0 || r.free > size {
				t.Fatalf("%d of %d are free", r.free, size)
			}
		}
		honest := &client{room: r}
		honest.hold = hold{amount: rapid.Int64Range(1, size/int64(hostile+1)).Draw(t, "honest"), holder: honest}
		if !r.take(over, &honest.hold, "honest") {
			t.Fatalf("the honest caller does not get %d of %d", honest.hold.amount, size)
		}
		honest.end()
		for _, c := range open {
			if !c.ended.Load() {
				c.end()
			}
		}
		for name, c := range r.callers {
			if c.held != 0 || c.ending != 0 || len(c.holds) > 0 || len(c.waiting) > 0 {
				t.Errorf("%s holds %d in the end, of which %d end", name, c.held, c.ending)
			}
		}
		if r.free != size || r.ending != 0 {
			t.Errorf("in the end %d of %d are free, and %d end", r.free, size, r.ending)
		}
	})
}
