package engine

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// evictions counts evictions against PodDisruptionBudgets, as kube-scheduler does. It reads only
// the budgets in the namespaces of the evicted pods.
type evictions struct {
	view    *snapshot.View
	counted map[*snapshot.DisruptionBudget]int32
}

func newEvictions(view *snapshot.View) evictions {
	return evictions{view, map[*snapshot.DisruptionBudget]int32{}}
}

func (e evictions) clone() evictions { return evictions{e.view, maps.Clone(e.counted)} }

// count counts the pod's eviction and reports whether it violates a budget.
func (e evictions) count(pod *corev1.Pod) bool {
	violates := false
	for budget := range e.view.DisruptionBudgets(pod.Namespace) {
		if budget.Counts(pod) {
			e.counted[budget]++
			violates = violates || e.counted[budget] > budget.Allowed()
		}
	}
	return violates
}

// split separates the pods whose eviction violates a budget, if all are evicted in order, from the
// others. Any of the others can be evicted without a violation. It does not change the receiver.
func (e evictions) split(pods []*corev1.Pod) (harmless, breaking []*corev1.Pod) {
	trial := e.clone()
	for _, p := range pods {
		if trial.count(p) {
			breaking = append(breaking, p)
		} else {
			harmless = append(harmless, p)
		}
	}
	return harmless, breaking
}

// ViolatesBudgets reports whether the eviction of all these pods violates a PodDisruptionBudget of
// the View.
func ViolatesBudgets(view *snapshot.View, pods []*corev1.Pod) bool {
	_, breaking := newEvictions(view).split(pods)
	return len(breaking) > 0
}
