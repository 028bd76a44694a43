// Package nodes reads numbers that Node objects carry: in a label, in an annotation, or
// as the state of a condition.
package nodes

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/snapshot"
)

// maxText bounds what is parsed as a number, because the cost of a quantity grows faster
// than its length, and an annotation may have 256 KiB.
const maxText = 64

// Source is a signal.Source. A value is a plain number (0.75, 1e3) or a Kubernetes
// quantity (500m is 0.5, 2Ki is 2048). Nodes without the label, annotation or condition
// have no value, and neither have those that carry something else than a number there;
// when no node carries a number and some carry something else, Read says so.
type Source struct {
	where   string
	view    func() *snapshot.View
	reading *snapshot.ObjectFact[reading]
}

// reading is what one Node object says.
type reading struct {
	told   bool // there is something
	ok     bool // it is a number
	number float64
	text   string // what there is, if it is no number
}

// New returns a Source of numbers from the nodes of what view returns, which is called at
// each reading. Exactly one field of the configuration is given.
func New(c Config, view func() *snapshot.View) *Source {
	s := &Source{view: view}
	// A fact is kept as long as its object, so that only what changed is parsed again.
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

// Read implements signal.Source. The samples have no time: they are as the view is now.
func (s *Source) Read(ctx context.Context, limits signal.Limits) ([]signal.Sample, error) {
	var samples []signal.Sample
	var first *snapshot.Node // of those with something that is no number
	wrong := 0
	for n := range s.view().All() {
		r := s.reading.Of(n)
		switch {
		case r.ok && len(samples) == limits.Values:
			return nil, signal.ErrTooMany
		case r.ok:
			samples = append(samples, signal.Sample{Key: n.Name, Number: r.number})
		case r.told:
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
	if number, ok := parse(strings.TrimSpace(text)); ok {
		return reading{told: true, ok: true, number: number}
	}
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return reading{told: true, text: text}
}

// number is what may be a number: ParseFloat and ParseQuantity let more pass, such as NaN
// and "-". What follows the digits of a quantity is in the group.
var number = regexp.MustCompile(`^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+|([numkMGTPE]|[KMGTPE]i))?$`)

func parse(text string) (float64, bool) {
	if len(text) > maxText {
		return 0, false
	}
	switch parts := number.FindStringSubmatch(text); {
	case parts == nil:
		return 0, false
	case parts[1] == "":
		n, err := strconv.ParseFloat(text, 64) // an error when it is too large
		return n, err == nil
	}
	quantity, err := resource.ParseQuantity(text)
	return quantity.AsApproximateFloat64(), err == nil
}

func conditionOf(node *corev1.Node, kind string) reading {
	for _, c := range node.Status.Conditions {
		if string(c.Type) != kind {
			continue
		}
		switch c.Status {
		case corev1.ConditionTrue:
			return reading{told: true, ok: true, number: 1}
		case corev1.ConditionFalse:
			return reading{told: true, ok: true}
		}
	}
	return reading{}
}
