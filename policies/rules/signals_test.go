package rules_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policies/rules"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

const overSignals = `
whenStale: Reject
filters:
- {name: cool, expression: 'signals.heat < 80.0'}
- {name: cool-or-red, expression: 'signals.heat < 40.0 || node.metadata.labels["team"] == "red"'}
- {name: quiet, expression: 'signals[?"load"].orValue(0.1) * 4.0 > double(usage.pods)'}
- {name: measured, expression: '"load" in signals || signals.heat < 20.0', failurePolicy: Ignore}
scores:
- {name: cold, expression: '100.0 - signals.heat'}
- {name: load, expression: 'has(signals.load) ? signals.load * 100.0 : 50.0'}
- {name: heat, expression: 'signals.heat'}
`

// A policy that keeps results from call to call gives the verdicts and scores of one that was built
// a moment ago, whatever changes in between.
func TestKeptResultsAreThoseOfNewPolicies(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pod := policytest.Pods("metadata: {name: new}")[0]
	kept := policytest.Build(t, rules.Type(), overSignals)
	numbers := map[string]map[string]snapshot.Value{"heat": {}, "load": {}}
	var b snapshot.Builder
	names := []string{"a", "b", "c"}
	setNode := func(name string) {
		b.SetNode(policytest.Nodes(fmt.Sprintf("metadata: {name: %s, labels: {team: %s}}", name, []string{"red", "blue"}[r.IntN(2)]))[0])
	}
	for _, name := range names {
		setNode(name)
	}
	verdicts := map[string]bool{}
	for step := range 60 {
		name := names[r.IntN(len(names))]
		switch r.IntN(8) {
		case 0:
			setNode(name)
		case 1:
			b.SetPod(policytest.Pods(fmt.Sprintf("{metadata: {name: p%d, uid: p%d}, spec: {nodeName: %s}}", step, step, name))[0])
		case 2:
			delete(numbers["heat"], name)
		case 3:
			v := numbers["heat"][name]
			v.Stale = true
			numbers["heat"][name] = v
		case 4:
			delete(numbers["load"], name)
		case 5:
			numbers["load"][name] = snapshot.Value{Number: float64(r.IntN(4)), At: policytest.Now}
		default:
			numbers["heat"][name] = snapshot.Value{Number: float64(r.IntN(5) * 25), At: policytest.Now}
		}
		for signal, values := range numbers {
			b.SetSignal(snapshot.NewSignal(signal, maps.Clone(values)))
		}
		view := b.View()
		got, want := results(t, kept, pod, view), results(t, policytest.Build(t, rules.Type(), overSignals), pod, view)
		if !slices.Equal(got, want) {
			t.Fatalf("step %d: %v, want %v", step, got, want)
		}
		for _, v := range got {
			verdicts[v] = true
		}
	}
	if len(verdicts) < 8 {
		t.Errorf("only %d different results: %v", len(verdicts), verdicts)
	}
}

// results returns a text for each node.
func results(t *testing.T, p policy.Policy, pod *corev1.Pod, view *snapshot.View) []string {
	cycle, err := p.Prepare(t.Context(), pod, view)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for row := range view.Rows() {
		n := view.At(row)
		v := cycle.(policy.Filter).Filter(n)
		code := "fits"
		if !v.Fits() {
			code = v.Reason.Code
		}
		all = append(all, fmt.Sprintf("%s %v %d", code, v.Unresolvable, cycle.(policy.Score).Score(n)))
	}
	return all
}
