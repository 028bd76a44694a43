package engine_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// largeBudget returns a budget whose selector has so many values, and that selects no pod of the
// tests.
func largeBudget(namespace, name string, values int) *policyv1.PodDisruptionBudget {
	in := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn}
	for i := range values {
		in.Values = append(in.Values, fmt.Sprintf("%063d", i))
	}
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{in}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1},
	}
}

// preemptWith returns what a preempt call adds as victims on a node where the pod fits without
// either of the pods a/x and b/x, and a/x is evicted first if no budget protects it.
func preemptWith(t *testing.T, budgets []*policyv1.PodDisruptionBudget) (added []string) {
	var builder snapshot.Builder
	builder.SetNode(object("n devices=2"))
	for i, namespace := range []string{"a", "b"} {
		builder.SetPod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x", UID: types.UID(namespace), Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"uses": "1"}},
			Spec:       corev1.PodSpec{NodeName: "n", Priority: new(int32(i))},
		})
	}
	for _, budget := range budgets {
		builder.SetDisruptionBudget(budget)
	}
	e := newEngine(t, engine.WeightedPolicy{Name: "OneDevice", Policy: new(oneDevice)})
	request := engine.PreemptRequest{Request: engine.Request{
		Pod:  &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "incoming", Annotations: map[string]string{"uses": "1"}}, Spec: corev1.PodSpec{Priority: new(int32(5))}},
		View: builder.View(),
	}, Candidates: []engine.Candidate{{Node: builder.View().Node("n"), Name: "n"}}}
	var result engine.Result
	if _, err := e.Preempt(t.Context(), request, &result); err != nil {
		t.Fatal(err)
	}
	return result.Record.Preemptions[0].Added
}

// A pod in a namespace with a budget that is too large counts as one that may not be disrupted: it
// is evicted last, but it is if nothing else helps.
func TestPreemptSparesPodsOfTooLargeBudgets(t *testing.T) {
	for name, tc := range map[string]struct {
		budgets []*policyv1.PodDisruptionBudget
		want    string
	}{
		"no budget":               {nil, "a/x"},
		"a large one":             {[]*policyv1.PodDisruptionBudget{largeBudget("a", "large", 190)}, "a/x"},
		"one that is too large":   {[]*policyv1.PodDisruptionBudget{largeBudget("a", "large", 250)}, "b/x"},
		"both that are too large": {[]*policyv1.PodDisruptionBudget{largeBudget("a", "large", 250), largeBudget("b", "large", 250)}, "a/x"},
	} {
		if added := preemptWith(t, tc.budgets); !slices.Equal(added, []string{tc.want}) {
			t.Errorf("%s: %v is evicted, want %s", name, added, tc.want)
		}
	}
}
