package policytest

import (
	"context"
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// T is the common part of testing.T, testing.B and rapid.T.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Context() context.Context
}

// Build returns the policy of a configuration in YAML, which must be valid.
func Build(t T, kind policy.Type, config string) policy.Policy {
	t.Helper()
	p, err := FromYAML(kind, config)()
	if err != nil {
		t.Fatalf("building the policy %s: %v", kind.Name, err)
	}
	return p
}

// View returns a View of these nodes, the pods on them, and the signals.
func View(nodes []*corev1.Node, pods []*corev1.Pod, signals []*snapshot.Signal) *snapshot.View {
	var b snapshot.Builder
	for _, n := range nodes {
		b.SetNode(n)
	}
	for _, p := range pods {
		b.SetPod(p)
	}
	for _, s := range signals {
		b.SetSignal(s)
	}
	return b.View()
}

// Prepare returns the policy's Cycle for the pod as a C, an interface with the methods under test.
// It fails the test if the policy does not apply to the pod, or the Cycle does not implement C.
func Prepare[C any](t T, p policy.Policy, pod *corev1.Pod, view *snapshot.View) C {
	t.Helper()
	prepared, err := p.Prepare(t.Context(), pod, view)
	if err != nil {
		t.Fatalf("Prepare of pod %q: %v", podName(pod), err)
	}
	cycle, ok := prepared.(C)
	if !ok {
		t.Fatalf("Prepare of pod %q returned a Cycle of type %T, which does not implement %v", podName(pod), prepared, reflect.TypeFor[C]())
	}
	return cycle
}

// Says returns a Verdict in the form of scenarios: "fits", or its code, "!" if it is unresolvable,
// and its numbers if they mean anything.
func Says(v policy.Verdict) string {
	if v.Fits() {
		return "fits"
	}
	text, numbers := columnsOf(v)
	if numbers != "-" {
		text += " " + numbers
	}
	return text
}
