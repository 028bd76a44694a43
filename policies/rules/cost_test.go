package rules_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/policies/rules"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

const (
	// nested is a loop in a loop about the pod.
	nested = `pod.metadata.finalizers.all(a, pod.metadata.finalizers.all(b, a + b != "x"))`
	// noClash compares each annotation of the pod with the labels of each node.
	noClash = `pod.metadata.annotations.all(k, !(k in node.metadata.labels))`
)

// largestPod has as many elements as a pod can have.
func largestPod() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "p", UID: "u", ResourceVersion: "1", Annotations: map[string]string{}}}
	for i := range 470 {
		pod.Annotations[fmt.Sprintf("a%x", i)] = ""
	}
	for snapshot.PodSize(pod) < snapshot.MaxPod-64 {
		pod.Finalizers = append(pod.Finalizers, "a/b")
	}
	return pod
}

func labelled(nodes int) *snapshot.View {
	var b snapshot.Builder
	for i := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{}}}
		for k := range 20 {
			n.Labels[fmt.Sprintf("label-%d", k)] = "x"
		}
		b.SetNode(n)
	}
	return b.View()
}

// The policy rejects a pod for which a rule exceeds its cost limit, with a reason that names the
// rule.
func TestPodThatCostsTooMuch(t *testing.T) {
	const condition = `matchConditions: [{name: pairs, expression: '` + nested + `'}], `
	for _, tt := range []struct{ name, filter, want string }{
		{"pod and node", `expression: '` + noClash + ` && ` + noClash + `'`, "one-cost-exceeded"},
		{"pod and node, without an effect", `expression: '` + noClash + `'`, ""},
		{"pod alone", `expression: '` + nested + `'`, "one-cost-exceeded"},
		{"part about the pod", `expression: '` + nested + ` || node.spec.unschedulable'`, "one-cost-exceeded"},
		{"match condition", condition + `expression: 'node.spec.unschedulable'`, "error"},
		{"rule that may fail", `failurePolicy: Ignore, expression: '` + noClash + ` && ` + noClash + `'`, ""},
		{"match condition that may fail", condition + `failurePolicy: Ignore, expression: 'false && node.spec.unschedulable'`, ""},
		{"loop over a large list", `expression: 'pod.metadata.finalizers.all(k, k.size() < 100)'`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			view := labelled(2)
			cycle, err := policytest.Build(t, rules.Type(), `filters: [{name: one, `+tt.filter+`}]`).Prepare(t.Context(), largestPod(), view)
			if err != nil {
				if tt.want != "error" || !strings.Contains(err.Error(), "rule one: its match condition pairs cannot be evaluated") || !strings.Contains(err.Error(), "cost limit exceeded") {
					t.Fatal(err)
				}
				return
			}
			filter, ok := cycle.(policy.Filter)
			if !ok {
				if tt.want != "" {
					t.Errorf("the cycle is %T", cycle)
				}
				return
			}
			for n := range view.All() {
				v, got := filter.Filter(n), ""
				if !v.Fits() {
					got = v.Reason.Code
				}
				if got != tt.want || got != "" && (!v.Unresolvable || !strings.Contains(v.Reason.Text, "rule one exceeds its cost limit")) {
					t.Fatalf("node %s: the verdict is %+v, want %q", n.Name, v, tt.want)
				}
			}
			if told := cycle.(policy.Explainer).Explain(view.At(0)); tt.want != "" && !strings.Contains(told[0], "cost limit exceeded") {
				t.Errorf("the explanation is %q", told)
			}
		})
	}
}

func TestScoreThatCostsTooMuch(t *testing.T) {
	view := labelled(1)
	p := policytest.Build(t, rules.Type(), `scores: [{name: no-clash, expression: '`+noClash+` && `+noClash+` ? 1 : 0'}]`)
	if score := policytest.Prepare[policy.Score](t, p, largestPod(), view).Score(view.At(0)); score != policy.NoOpinion {
		t.Errorf("the score is %d, want none", score)
	}
}

// An evaluation ends with the call.
func TestEvaluationEndsWithItsContext(t *testing.T) {
	p := policytest.Build(t, rules.Type(), `filters: [{name: one, expression: '`+nested+` && node.metadata.name != ""'}]`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Prepare(ctx, largestPod(), labelled(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("with a canceled context: %v", err)
	}
}

// The verdict does not depend on the iteration order of a Go map.
func TestLoopsOverMapsHaveAnOrder(t *testing.T) {
	view := labelled(1)
	for _, text := range []string{
		`pod.metadata.annotations.map(k, k)[0] == "a0"`,
		`pod.metadata.annotations.map(k, k + node.metadata.name)[0] == "a0n0"`,
		`pod.metadata.annotations.transformList(k, v, k)[0] == "a0"`,
		`podRequests.map(k, k)[0] == "cpu"`,
	} {
		p := policytest.Build(t, rules.Type(), "filters: [{name: one, expression: '"+text+"'}]")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{"a0": "", "a1": "", "a2": ""}}}
		for range 20 {
			cycle, err := p.Prepare(t.Context(), pod, view)
			if err != nil {
				t.Fatal(err)
			}
			if f, ok := cycle.(policy.Filter); ok && !f.Filter(view.At(0)).Fits() {
				t.Fatalf("%s is false", text)
			}
		}
	}
}

// An argument that a function compiles must be a literal.
func TestComputedPatternsAreRefused(t *testing.T) {
	for text, valid := range map[string]bool{
		`node.metadata.name.matches(pod.metadata.name)`: false, `matches("a", pod.metadata.name)`: false, `node.metadata.name.find(pod.metadata.name) == ""`: false,
		`pod.metadata.name.findAll(node.metadata.name).size() == 0`: false, `["a"].exists(p, pod.metadata.name.matches(p))`: false,
		`pod.metadata.name.format([1.0]) == ""`: false, `lists.range(int(pod.metadata.name)).size() == 1`: false,
		`pod.metadata.name.matches("a")`: true, `"%s".format([pod.metadata.name]) == ""`: true,
	} {
		if _, err := policytest.FromYAML(rules.Type(), "filters: [{name: one, expression: '"+text+"'}]")(); (err == nil) != valid {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A quantity that the Kubernetes libraries take long to read is no quantity.
func TestQuantitiesAreBounded(t *testing.T) {
	view := labelled(1)
	p := policytest.Build(t, rules.Type(), `filters: [{name: one, expression: 'isQuantity(pod.metadata.name) && quantity(pod.metadata.name).isInteger() && node.metadata.name != ""'}]`)
	for text, want := range map[string]bool{
		"1Gi": true, "1e3": true, "1e-9999999": false, "1E99999999": false, strings.Repeat("1", 18): true, strings.Repeat("1", 65): false,
	} {
		cycle := policytest.Prepare[policy.Filter](t, p, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: text}}, view)
		if got := cycle.Filter(view.At(0)).Fits(); got != want {
			t.Errorf("%.20q is a quantity: %t", text, got)
		}
	}
}
