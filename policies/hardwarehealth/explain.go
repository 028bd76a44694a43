package hardwarehealth

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// Explain implements policy.Explainer: it lists the rules that apply to the node, and since when.
func (c *cycle) Explain(n *snapshot.Node) []string {
	var said []string
	if n == nil {
		if len(c.tolerated) > 0 {
			said = append(said, fmt.Sprintf("tolerated rules: %s (annotation %s)", strings.Join(c.tolerated, ", "), c.policy.config.TolerationAnnotation))
		}
		return said
	}
	objects := *c.policy.objects.Of(n)
	for i := range c.rules {
		r := &c.rules[i]
		switch r.evaluate(n, objects) {
		case degraded:
			said = append(said, fmt.Sprintf("rule %s: %s (%s)", r.Name, r.effect(), r.why(n)))
		case unknown:
			said = append(said, fmt.Sprintf("rule %s: unknown (%s)", r.Name, r.why(n)))
		}
	}
	return said
}

func (r *Rule) effect() string {
	if r.Reject {
		return "rejects"
	}
	if *r.Penalty == 1 {
		return "subtracts 1 point"
	}
	return fmt.Sprintf("subtracts %d points", *r.Penalty)
}

// why describes what the rule found, and since when.
func (r *appliedRule) why(n *snapshot.Node) string {
	switch {
	case r.NodeCondition != nil:
		return describe(r.NodeCondition.of(n.Object))
	case r.NodeLabel != nil:
		return fmt.Sprintf("label %s is %q", r.NodeLabel.Key, n.Object.Labels[r.NodeLabel.Key])
	}
	v := r.signal.Of(n)
	switch at := v.At.UTC().Format(time.RFC3339); {
	case !v.Current():
		return v.Missing(r.Signal.Name, "the node")
	case r.Signal.Above != nil:
		return fmt.Sprintf("signal %s was %g, above %g, at %s", r.Signal.Name, v.Number, *r.Signal.Above, at)
	case r.Signal.Below != nil:
		return fmt.Sprintf("signal %s was %g, below %g, at %s", r.Signal.Name, v.Number, *r.Signal.Below, at)
	default:
		return fmt.Sprintf("signal %s is %g since %s", r.Signal.Name, v.Number, at)
	}
}

// describe describes an existing condition.
func describe(c *corev1.NodeCondition) string {
	text := fmt.Sprintf("condition %s is %s", c.Type, c.Status)
	if !c.LastTransitionTime.IsZero() {
		text += " since " + c.LastTransitionTime.UTC().Format(time.RFC3339)
	}
	if c.Reason != "" {
		text += ", " + c.Reason
	}
	return text
}
