package hardwarehealth

import (
	corev1 "k8s.io/api/core/v1"
)

// matches reports whether the Node object matches the rule. It never matches a rule with a signal.
func (r *Rule) matches(n *corev1.Node) bool {
	switch {
	case r.NodeCondition != nil:
		c := r.NodeCondition.of(n)
		return c != nil && c.Status == corev1.ConditionTrue
	case r.NodeLabel != nil:
		return r.NodeLabel.In(n.Labels)
	}
	return false
}

// of returns the node's condition of the type, or nil.
func (c *Condition) of(n *corev1.Node) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if string(n.Status.Conditions[i].Type) == c.Type {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}
