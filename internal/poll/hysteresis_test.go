package poll

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/snapshot"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

const (
	maxAge  = time.Minute
	minutes = 60
)

// play passes the numbers one by one, and returns the states and their start times, in seconds.
func play(h signal.Hysteresis, series string) string {
	var s states
	var said []string
	for _, item := range strings.Fields(series) {
		var seconds int
		var number float64
		if _, err := fmt.Sscanf(item, "%d:%g", &seconds, &number); err != nil {
			panic(err)
		}
		s = s.step(reading{"a": {Number: number, At: at(seconds)}}, &h, maxAge, 10, at(seconds))
		values := s.reading()
		s.date(values, nil)
		said = append(said, fmt.Sprintf("%g@%g", values["a"].Number, values["a"].At.Sub(epoch).Seconds()))
	}
	return strings.Join(said, " ")
}

func TestHysteresis(t *testing.T) {
	hot := signal.Hysteresis{Above: new(85.0), ClearBelow: new(75.0)}
	low := signal.Hysteresis{Below: new(10.0), ClearAbove: new(20.0)}
	slow := signal.Hysteresis{Above: new(85.0), ClearBelow: new(75.0), For: 30 * time.Second, ClearAfter: 40 * time.Second}
	for _, tt := range []struct {
		name         string
		h            signal.Hysteresis
		series, want string
	}{
		{"up and down", hot, "0:70 10:86 20:80 30:86 40:75 50:74 60:80 70:86", "0@0 1@10 1@10 1@10 1@10 0@50 0@50 1@70"},
		{"at the threshold", hot, "0:85 10:85.1 20:75 30:74.9", "0@0 1@10 1@10 0@30"},
		{"bad when low", low, "0:15 10:9 20:15 30:20 40:21 50:15", "0@0 1@10 1@10 1@10 0@40 0@40"},
		{"one threshold", signal.Hysteresis{Above: new(0.5)}, "0:0 10:1 20:0 30:1", "0@0 1@10 0@20 1@30"},
		{"begins beyond", slow, "0:86 10:86", "1@0 1@0"},
		{"begins between", hot, "0:80 10:86", "0@0 1@10"},
		{"held long enough", slow, "0:0 10:86 20:86 30:86 40:86", "0@0 0@0 0@0 0@0 1@40"},
		{"not held", slow, "0:0 10:86 20:86 30:80 40:86 50:86 70:86", "0@0 0@0 0@0 0@0 0@0 0@0 1@70"},
		{"clear long enough", slow, "0:90 10:74 40:74 50:74", "1@0 1@0 1@0 0@50"},
		{"not clear", slow, "0:90 10:74 40:76 50:74 80:74 90:74", "1@0 1@0 1@0 1@0 1@0 0@90"},
		{"a gap breaks", slow, "0:0 10:86 71:86 91:86 101:86", "0@0 0@0 0@0 0@0 1@101"},
		{"the state outlives a gap", hot, "0:90 1000:80 2000:70", "1@0 1@0 0@2000"},
		{"the same number again", slow, "0:0 10:86 10:86 10:86", "0@0 0@0 0@0 0@0"},
		{"back in time", slow, "0:0 50:0 10:86 40:86 60:0", "0@0 0@0 0@0 0@0 0@0"},
	} {
		if got := play(tt.h, tt.series); got != tt.want {
			t.Errorf("%s: %s becomes\n%s, want\n%s", tt.name, tt.series, got, tt.want)
		}
	}
}

// TestHysteresisIsSteady: numbers between the thresholds change nothing. With any numbers, the
// state changes only where it may, and without a hold time it follows the last number outside the
// thresholds.
func TestHysteresisIsSteady(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := signal.Hysteresis{Above: new(60.0), ClearBelow: new(40.0)}
		hold := time.Duration(rapid.IntRange(0, 3).Draw(t, "hold")) * 10 * time.Second
		h.For, h.ClearAfter = hold, hold
		numbers := rapid.SliceOfN(rapid.Float64Range(0, 100), 1, 40).Draw(t, "numbers")
		var s states
		on, changed := numbers[0] > 60, 0
		for i, number := range numbers {
			before := s["a"]
			s = s.step(reading{"a": {Number: number, At: at(10 * i)}}, &h, maxAge, 10, at(10*i))
			now := s["a"]
			if number > 60 {
				on = true
			} else if number < 40 {
				on = false
			}
			if hold == 0 && now.on != on {
				t.Fatalf("%v: after %g the state is %t", numbers[:i+1], number, now.on)
			}
			if i == 0 || now.on == before.on {
				continue
			}
			if now.on && number <= 60 || !now.on && number >= 40 {
				t.Fatalf("%v: %g changed the state to %t", numbers[:i+1], number, now.on)
			}
			if at(10*i).Sub(at(10*changed)) < hold {
				t.Fatalf("%v: the state changed twice within %s", numbers[:i+1], hold)
			}
			changed = i
		}
	})
}

// The state of a key stays if the source leaves the key out for a while, and is removed if the key
// does not come back.
func TestKeysLeftOut(t *testing.T) {
	h := signal.Hysteresis{Above: new(85.0), ClearBelow: new(75.0)}
	value := func(number float64, seconds int) snapshot.Value {
		return snapshot.Value{Number: number, At: at(seconds)}
	}
	both := states(nil).step(reading{"a": value(90, 0), "b": value(90, 0)}, &h, maxAge, 2, at(0))
	without := both.step(reading{"b": value(80, 30)}, &h, maxAge, 2, at(30))
	if got := without.reading(); got["a"] != value(1, 0) || got["b"] != value(1, 30) {
		t.Errorf("missing once: %v", got)
	}
	if again := without.step(reading{"a": value(80, 40)}, &h, maxAge, 2, at(40)); !again["a"].on {
		t.Errorf("present again: %v", again)
	}
	if got := without.step(reading{"b": value(80, 60)}, &h, maxAge, 2, at(minutes)).reading(); len(got) != 1 {
		t.Errorf("missing for too long: %v", got)
	}
	if got := both.step(reading{"c": value(90, 30)}, &h, maxAge, 2, at(30)).reading(); len(got) != 1 {
		t.Errorf("more than the limit: %v", got)
	}
	if len(both) != 2 || !both["a"].seen.Equal(at(0)) {
		t.Errorf("the states before have changed: %v", both)
	}
}
