package engine

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"outboard.dev/outboard/snapshot"
)

// byPreference returns the indices of the candidates in the order of kube-scheduler's preference
// (pickOneNodeForPreemption): fewest violations of disruption budgets, then the lowest priority of
// the most important victim, then the lowest sum of priorities.
func byPreference(candidates []Candidate) []int {
	order, costs := make([]int, len(candidates)), make([]cost, len(candidates))
	for i, c := range candidates {
		order[i], costs[i] = i, costOf(c)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := costs[a], costs[b]
		return cmp.Or(cmp.Compare(x.violations, y.violations), cmp.Compare(x.highest, y.highest), cmp.Compare(x.sum, y.sum))
	})
	return order
}

type cost struct{ violations, highest, sum int64 }

// costOf counts the victims that the node of the View has.
func costOf(c Candidate) cost {
	all := cost{violations: c.PDBViolations, highest: math.MinInt64}
	if c.Node == nil {
		return all
	}
	for _, pod := range c.Node.Pods {
		if slices.Contains(c.Victims, pod.UID) {
			priority := int64(corev1helpers.PodPriority(pod))
			all.highest = max(all.highest, priority)
			all.sum += priority + math.MaxInt32 + 1 // so that more victims always cost more
		}
	}
	return all
}

// CompareImportance orders pods from the least to the most important, as kube-scheduler's
// MoreImportantPod does: a pod of higher priority is more important, then one that started earlier.
func CompareImportance(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(corev1helpers.PodPriority(a), corev1helpers.PodPriority(b)), StartOf(b).Compare(StartOf(a)))
}

// HighestPriority returns the highest priority of the pods; math.MinInt32 if there are none.
func HighestPriority(pods []*corev1.Pod) int32 {
	top := int32(math.MinInt32)
	for _, p := range pods {
		top = max(top, corev1helpers.PodPriority(p))
	}
	return top
}

// StartOf returns when the pod started; a pod that has not started is the newest.
func StartOf(p *corev1.Pod) time.Time {
	if p.Status.StartTime == nil {
		return time.Unix(1<<60, 0)
	}
	return p.Status.StartTime.Time
}

// ViolatingBudgets returns those of the pods whose eviction violates a PodDisruptionBudget of the
// View, if all are evicted in this order, as kube-scheduler counts. Any of the others can be
// evicted without a violation.
func ViolatingBudgets(view *snapshot.View, pods []*corev1.Pod) (violating []*corev1.Pod) {
	evictions := map[*snapshot.DisruptionBudget]int32{}
	for _, pod := range pods {
		violates := false
		for budget := range view.DisruptionBudgets(pod.Namespace) {
			if budget.Counts(pod) {
				evictions[budget]++
				violates = violates || evictions[budget] > budget.Allowed()
			}
		}
		if violates {
			violating = append(violating, pod)
		}
	}
	return violating
}
