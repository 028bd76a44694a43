package policy_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// coolNodes prefers cool machines, and keeps pods off hot ones.
type coolNodes struct{ signal string }

var tooHot = &policy.Reason{Code: "TooHot", Text: "node(s) are too hot", Unit: "°C"}

func (p *coolNodes) Inputs() policy.Inputs {
	return policy.Inputs{Signals: []policy.Signal{{Field: "signal", Name: p.signal, About: policy.AboutNodes}}}
}

func (p *coolNodes) Prepare(_ context.Context, _ *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	return &coolCycle{view.Signal(p.signal)}, nil
}

type coolCycle struct{ celsius *snapshot.Signal }

func (c *coolCycle) Filter(n *snapshot.Node) policy.Verdict {
	if v := c.celsius.Of(n); v.Current() && v.Number > 85 {
		return policy.Verdict{Reason: tooHot, Unresolvable: true, Have: int64(v.Number), Want: 85}
	}
	return policy.Verdict{}
}

func (c *coolCycle) Score(n *snapshot.Node) int64 {
	v := c.celsius.Of(n)
	if !v.Current() {
		return policy.NoOpinion
	}
	return max(0, min(policy.MaxScore, 100-int64(v.Number)))
}

func (c *coolCycle) Explain(n *snapshot.Node) []string {
	if n == nil {
		return nil // there is nothing to say about the pod alone
	}
	v := c.celsius.Of(n)
	if !v.Current() {
		return []string{fmt.Sprintf("temperature: unknown (%s)", v.Missing(c.celsius.Name(), "the node"))}
	}
	return []string{fmt.Sprintf("temperature: %.0f °C", v.Number)}
}

func TestSignalExample(t *testing.T) {
	policytest.Run(t, policytest.Options{
		New:     func() (policy.Policy, error) { return &coolNodes{"temperature"}, nil },
		Pods:    policytest.Pods(`- metadata: {name: new}`),
		Nodes:   policytest.Nodes(`[{metadata: {name: cool}}, {metadata: {name: hot}}, {metadata: {name: unknown}}]`),
		Signals: policytest.Signals(`temperature: {cool: 40, hot: 90}`),
	})
}
