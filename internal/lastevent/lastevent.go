// Package lastevent counts events with the time and an example of the latest one, so that the page
// can say when and what it was. Prometheus does not read them.
package lastevent

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// label is the name of the label that has the example, and maxText how long an example may be:
// together at most prometheus.ExemplarMaxRunes.
const (
	label   = "example"
	maxText = 100
)

// Count increases the counter by one. The example is what clients choose, such as a path.
func Count(c prometheus.Counter, example string) {
	example = strings.ToValidUTF8(example, "\uFFFD")
	if runes := []rune(example); len(runes) > maxText {
		example = string(runes[:maxText]) + "…"
	}
	c.(prometheus.ExemplarAdder).AddWithExemplar(1, prometheus.Labels{label: example})
}

// Latest returns when a counter last counted, and the example; zero if Count has not counted.
func Latest(c *dto.Counter) (at time.Time, example string) {
	if c.GetExemplar() == nil {
		return time.Time{}, ""
	}
	for _, l := range c.GetExemplar().GetLabel() {
		example = l.GetValue()
	}
	return c.GetExemplar().GetTimestamp().AsTime(), example
}
