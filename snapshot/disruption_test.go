package snapshot_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"weak"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/snapshot"
)

// selecting returns a budget in the namespace a that selects app=web, and app with n other values of 63 bytes.
func selecting(name string, n int) *policyv1.PodDisruptionBudget {
	values := []string{"web"}
	for i := range n {
		values = append(values, fmt.Sprintf("%063d", i))
	}
	b := budget("a", name)
	b.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: values}}}
	b.Status.DisruptionsAllowed = 1
	return b
}

// labeled returns a pod of the namespace a.
func labeled(name string, set map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Labels: set}}
}

// A budget that is too large allows no disruption of any pod of its namespace, until it is small again. Nothing of it stays in memory,
// except its name.
func TestLargeDisruptionBudget(t *testing.T) {
	var b snapshot.Builder
	b.SetDisruptionBudget(selecting("fits", 190))
	large := selecting("large", 19_000)
	value := weak.Make(&large.Spec.Selector.MatchExpressions[0].Values[0])
	disrupted := selecting("disrupted", 0)
	disrupted.Status.DisruptedPods = map[string]metav1.Time{}
	for i := range 300 {
		disrupted.Status.DisruptedPods[fmt.Sprintf("service-7d4b9c6f58-%05d", i)] = metav1.Now()
	}
	if b.SetDisruptionBudget(large) || b.SetDisruptionBudget(disrupted) {
		t.Error("the budgets count as they are")
	}
	large = nil
	runtime.GC()
	if value.Value() != nil {
		t.Error("the values of the selector are still in memory")
	}
	counts := func(want ...string) {
		t.Helper()
		var got []string
		for budget := range b.View().DisruptionBudgets("a") {
			got = append(got, fmt.Sprint(budget.Name(), " ", budget.Allowed(), " ", budget.Counts(labeled("p", map[string]string{"app": "db"}))))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	counts("disrupted 0 true", "fits 1 false", "large 0 true")
	if !b.SetDisruptionBudget(selecting("large", 1)) {
		t.Error("the small budget is too large")
	}
	b.DeleteDisruptionBudget(types.NamespacedName{Namespace: "a", Name: "disrupted"})
	counts("fits 1 false", "large 1 false")
	runtime.KeepAlive(&b)
}

// A budget within the limits selects and counts the pods that kube-scheduler's preemption counts.
func TestDisruptionBudgetCountsAsInKubeScheduler(t *testing.T) {
	key := rapid.SampledFrom([]string{"app", "tier", "zone"})
	value := rapid.SampledFrom([]string{"a", "b", ""})
	set := rapid.MapOfN(key, value, 0, 3)
	expression := rapid.Custom(func(t *rapid.T) metav1.LabelSelectorRequirement {
		operators := []metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist, "?"}
		r := metav1.LabelSelectorRequirement{Key: key.Draw(t, "key"), Operator: rapid.SampledFrom(operators).Draw(t, "operator")}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			r.Values = rapid.SliceOfN(value, 0, 2).Draw(t, "values")
		}
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		pdb := budget("a", "x")
		if rapid.Bool().Draw(t, "selector") {
			pdb.Spec.Selector = &metav1.LabelSelector{MatchLabels: set.Draw(t, "labels"), MatchExpressions: rapid.SliceOfN(expression, 0, 2).Draw(t, "expressions")}
		}
		pdb.Status.DisruptionsAllowed = rapid.Int32Range(0, 3).Draw(t, "allowed")
		if rapid.Bool().Draw(t, "disrupted") {
			pdb.Status.DisruptedPods = map[string]metav1.Time{"p": metav1.Now()}
		}
		pod := labeled(rapid.SampledFrom([]string{"p", "q"}).Draw(t, "pod"), set.Draw(t, "pod's labels"))

		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		_, disrupted := pdb.Status.DisruptedPods[pod.Name]
		want := err == nil && len(pod.Labels) > 0 && !selector.Empty() && selector.Matches(labels.Set(pod.Labels)) && !disrupted

		var b snapshot.Builder
		b.SetDisruptionBudget(pdb)
		for got := range b.View().DisruptionBudgets("a") {
			if got.Counts(pod) != want || got.Allowed() != pdb.Status.DisruptionsAllowed || got.Name() != "x" {
				t.Fatalf("%q allows %d and counts the pod: %v, want %v", got.Name(), got.Allowed(), got.Counts(pod), want)
			}
		}
	})
}
