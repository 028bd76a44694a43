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

// protectsAll reports whether the budgets of the namespace count as one that allows no disruption of any pod.
func protectsAll(v *snapshot.View, namespace string) bool {
	all := slices.Collect(v.DisruptionBudgets(namespace))
	return len(all) == 1 && all[0].Name() == "" && all[0].Allowed() == 0 && all[0].Counts(labeled("p", nil)) && all[0].Counts(labeled("q", map[string]string{"app": "db"}))
}

// Budgets count as they are up to a limit for each and for all of a namespace; beyond it, they protect all
// pods of the namespace, until they are within the limit again. Other namespaces are not concerned.
func TestDisruptionBudgetsAreLimited(t *testing.T) {
	disrupted := func(n int) *policyv1.PodDisruptionBudget {
		b := selecting("disrupted", 0)
		b.Status.DisruptedPods = map[string]metav1.Time{}
		for i := range n {
			b.Status.DisruptedPods[fmt.Sprintf("service-7d4b9c6f58-%05d", i)] = metav1.Now()
		}
		return b
	}
	many := func(n, values int) (all []*policyv1.PodDisruptionBudget) {
		for i := range n {
			all = append(all, selecting(fmt.Sprint("many-", i), values))
		}
		return all
	}
	for name, tc := range map[string]struct {
		budgets []*policyv1.PodDisruptionBudget
		kept    bool
	}{
		"values":                  {many(1, 190), true},
		"too many values":         {many(1, 210), false},
		"disrupted pods":          {[]*policyv1.PodDisruptionBudget{disrupted(100)}, true},
		"too many disrupted pods": {[]*policyv1.PodDisruptionBudget{disrupted(300)}, false},
		"large ones":              {many(60, 190), true},
		"too many large ones":     {many(75, 190), false},
		"small ones":              {many(2000, 0), true},
		"too many small ones":     {many(8000, 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			var b snapshot.Builder
			b.SetDisruptionBudget(budget("b", "other"))
			for _, budget := range tc.budgets {
				b.SetDisruptionBudget(budget)
			}
			v := b.View()
			if got := len(slices.Collect(v.DisruptionBudgets("a"))); got != len(tc.budgets) && tc.kept || protectsAll(v, "a") == tc.kept {
				t.Errorf("%d budgets of %d, protecting all pods: %v, want %v", got, len(tc.budgets), protectsAll(v, "a"), !tc.kept)
			}
			if got := slices.Collect(v.DisruptionBudgets("b")); len(got) != 1 || got[0].Name() != "other" {
				t.Errorf("the other namespace has %v", got)
			}
			for _, budget := range tc.budgets[1:] {
				b.DeleteDisruptionBudget(types.NamespacedName{Namespace: "a", Name: budget.Name})
			}
			small := selecting(tc.budgets[0].Name, 1)
			if !b.SetDisruptionBudget(small) || protectsAll(b.View(), "a") {
				t.Error("the budget is small now, and still protects all pods")
			}
			b.DeleteDisruptionBudget(types.NamespacedName{Namespace: "a", Name: small.Name})
			if got := slices.Collect(b.View().DisruptionBudgets("a")); got != nil {
				t.Errorf("after deletion: %v", got)
			}
		})
	}
}

// Nothing of a budget that is too large stays in memory, except its name.
func TestLargeDisruptionBudgetTakesNoMemory(t *testing.T) {
	var b snapshot.Builder
	large := selecting("large", 19_000)
	value := weak.Make(&large.Spec.Selector.MatchExpressions[0].Values[0])
	if b.SetDisruptionBudget(large) {
		t.Error("the budget counts as it is")
	}
	v := b.View()
	large = nil
	runtime.GC()
	if value.Value() != nil {
		t.Error("the values of the selector are still in memory")
	}
	if !protectsAll(v, "a") {
		t.Error("the pods of the namespace are not protected")
	}
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
