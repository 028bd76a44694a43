// Package nodes reads numbers from Node objects: from a label, an annotation, or the status of a
// condition.
package nodes

import (
	"context"
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/snapshot"
)

// maxText bounds what is parsed as a number and what is kept of other text: an annotation may have
// 256 KiB.
const maxText = 64

// Source is a signal.Source. A value is what [signal.ParseNumber] accepts, except NaN and Inf.
// Nodes without the label, annotation or condition have no value, and neither have nodes with
// another text there; if no node has a number and some have another text, Read returns an error.
type Source struct {
	where   string
	view    func() *snapshot.View
	reading *snapshot.ObjectFact[reading]
}

// reading is the value of one Node object.
type reading struct {
	exists bool // the label, annotation or condition exists
	ok     bool // it is a number
	number float64
	text   string // the text, if it is not a number
}

// New returns a Source of numbers from the nodes of the view that view returns at each read.
// Exactly one field of the configuration is set.
func New(c Config, view func() *snapshot.View) *Source {
	s := &Source{view: view}
	// A Fact is kept with its object, so that only changed objects are parsed again.
	switch {
	case c.Label != "":
		s.where = "label " + c.Label
		s.reading = snapshot.NewObjectFact(func(n *corev1.Node) reading { return textOf(n.Labels, c.Label) })
	case c.Annotation != "":
		s.where = "annotation " + c.Annotation
		s.reading = snapshot.NewObjectFact(func(n *corev1.Node) reading { return textOf(n.Annotations, c.Annotation) })
	default:
		s.where = "condition " + c.Condition
		s.reading = snapshot.NewObjectFact(func(n *corev1.Node) reading { return conditionOf(n, c.Condition) })
	}
	return s
}

// Read implements signal.Source. The samples have no time: they are as of the view.
func (s *Source) Read(ctx context.Context, limits signal.Limits) ([]signal.Sample, error) {
	var samples []signal.Sample
	var first *snapshot.Node // the first node with a text that is not a number
	wrong := 0
	for n := range s.view().All() {
		r := s.reading.Of(n)
		switch {
		case r.ok && len(samples) == limits.Values:
			return nil, signal.ErrTooMany
		case r.ok:
			samples = append(samples, signal.Sample{Key: n.Name, Number: r.number})
		case r.exists:
			if wrong++; first == nil {
				first = n
			}
		}
	}
	if len(samples) == 0 && first != nil {
		return nil, fmt.Errorf("none of the %d node(s) with the %s has a number there: %s has %q", wrong, s.where, first.Name, s.reading.Of(first).text)
	}
	return samples, ctx.Err()
}

func textOf(values map[string]string, key string) reading {
	text, ok := values[key]
	if !ok {
		return reading{}
	}
	if len(text) > maxText {
		return reading{exists: true, text: strings.ToValidUTF8(text[:maxText], "") + "…"}
	}
	if number, err := signal.ParseNumber(text); err == nil && !math.IsNaN(number) && !math.IsInf(number, 0) {
		return reading{exists: true, ok: true, number: number}
	}
	return reading{exists: true, text: text}
}

func conditionOf(node *corev1.Node, kind string) reading {
	for _, c := range node.Status.Conditions {
		if string(c.Type) != kind {
			continue
		}
		switch c.Status {
		case corev1.ConditionTrue:
			return reading{exists: true, ok: true, number: 1}
		case corev1.ConditionFalse:
			return reading{exists: true, ok: true}
		}
	}
	return reading{}
}
