package lastevent_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"outboard.dev/outboard/internal/lastevent"
)

// Any text of a client is an example, and the counter has the latest one.
func TestCount(t *testing.T) {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "calls_total"})
	var m dto.Metric
	_ = c.Write(&m)
	if at, example := lastevent.Latest(m.GetCounter()); !at.IsZero() || example != "" {
		t.Errorf("before the first event: %s, %q", at, example)
	}
	began := time.Now()
	for _, text := range []string{"", "\xff\xfe", strings.Repeat("/€", 1000), "/filter"} {
		lastevent.Count(c, text)
		_ = c.Write(&m)
		at, example := lastevent.Latest(m.GetCounter())
		if at.Before(began.Add(-time.Millisecond)) || !utf8.ValidString(example) || text != "" && example == "" {
			t.Errorf("%q: %s, %q", text, at, example)
		}
	}
	if _, example := lastevent.Latest(m.GetCounter()); example != "/filter" || m.GetCounter().GetValue() != 4 {
		t.Errorf("%q of %v events", example, m.GetCounter().GetValue())
	}
}
