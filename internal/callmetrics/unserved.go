package callmetrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/lastevent"
)

// noVerb is the label value of calls whose path does not end in a verb.
const noVerb = "other"

// Unserved counts the calls of paths at which nothing is served.
type Unserved struct{ calls *prometheus.CounterVec }

// NewUnserved registers the metric.
func NewUnserved(r prometheus.Registerer) *Unserved {
	u := &Unserved{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outboard_server_unserved_requests_total",
		Help: "Calls of paths at which nothing is served, by the verb at the end of the path (or other).",
	}, []string{"verb"})}
	for _, verb := range decision.Verbs() {
		u.calls.WithLabelValues(string(verb)) // so that a rate includes the first call
	}
	u.calls.WithLabelValues(noVerb)
	r.MustRegister(u.calls)
	return u
}

// Count counts a call. Callers choose the path, so only a verb at its end can be a label value.
func (u *Unserved) Count(path string) {
	verb := path[strings.LastIndexByte(path, '/')+1:]
	if !slices.Contains(decision.Verbs(), decision.Verb(verb)) {
		verb = noVerb
	}
	lastevent.Count(u.calls.WithLabelValues(verb), path)
}
