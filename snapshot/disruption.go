package snapshot

import (
	"cmp"
	"iter"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// maxBudget is how much memory one budget takes, in bytes: tens of times that of a usual one,
// because tenants write PodDisruptionBudgets. A larger one counts as one that selects every pod and
// allows no disruption. That is safe: a budget is only a preference in preemption, so such a pod is
// still evicted if nothing else helps.
const maxBudget = 16 << 10

// DisruptionBudget is what preemption reads of a PodDisruptionBudget. It is immutable.
type DisruptionBudget struct {
	name      string
	allowed   int32
	selector  labels.Selector // nil: every pod
	disrupted map[string]struct{}
}

// newDisruptionBudget keeps nothing of a budget that is too large, except its name.
func newDisruptionBudget(from *policyv1.PodDisruptionBudget) *DisruptionBudget {
	b := &DisruptionBudget{name: from.Name}
	if SizeOf(from.Spec.Selector)+SizeOf(from.Status.DisruptedPods) > maxBudget {
		return b
	}
	b.allowed = from.Status.DisruptionsAllowed
	for name := range from.Status.DisruptedPods {
		if b.disrupted == nil {
			b.disrupted = make(map[string]struct{}, len(from.Status.DisruptedPods))
		}
		b.disrupted[name] = struct{}{}
	}
	selector, err := metav1.LabelSelectorAsSelector(from.Spec.Selector)
	if err != nil || selector.Empty() {
		b.selector = labels.Nothing()
		return b
	}
	b.selector = selector
	return b
}

// Name returns the budget's name.
func (b *DisruptionBudget) Name() string { return b.name }

// Allowed returns how many pods may be disrupted now. It is not negative in a valid budget.
func (b *DisruptionBudget) Allowed() int32 { return b.allowed }

// Counts reports whether a disruption of the pod, which is in the budget's namespace, counts
// against the budget, as in kube-scheduler: a budget with an empty selector selects no pod, and a
// pod that the API server already counts as disrupted does not count again.
func (b *DisruptionBudget) Counts(pod *corev1.Pod) bool {
	if b.selector == nil {
		return true
	}
	if len(pod.Labels) == 0 || !b.selector.Matches(labels.Set(pod.Labels)) {
		return false
	}
	_, counted := b.disrupted[pod.Name]
	return !counted
}

// SetDisruptionBudget adds the budget, or replaces the one with the same namespace and name. It
// ignores a budget of which nothing has changed that preemption reads. It does not keep the object.
// It returns false if the budget is too large: then all pods of the namespace count as pods that
// may not be disrupted.
func (b *Builder) SetDisruptionBudget(budget *policyv1.PodDisruptionBudget) bool {
	next := newDisruptionBudget(budget)
	all := slices.Clone(b.budgets[budget.Namespace])
	i, known := slices.BinarySearchFunc(all, next.name, compareBudget)
	switch {
	case known && reflect.DeepEqual(all[i], next):
		return next.selector != nil
	case known:
		all[i] = next
	default:
		all = slices.Insert(all, i, next)
	}
	b.replaceBudgets(budget.Namespace, all)
	return next.selector != nil
}

// DeleteDisruptionBudget removes the budget. It ignores an unknown one.
func (b *Builder) DeleteDisruptionBudget(key types.NamespacedName) {
	all := b.budgets[key.Namespace]
	if i, known := slices.BinarySearchFunc(all, key.Name, compareBudget); known {
		b.replaceBudgets(key.Namespace, slices.Delete(slices.Clone(all), i, i+1))
	}
}

func compareBudget(b *DisruptionBudget, name string) int { return cmp.Compare(b.name, name) }

// replaceBudgets replaces the budgets of the namespace. The current View keeps its map.
func (b *Builder) replaceBudgets(namespace string, all []*DisruptionBudget) {
	if !b.budgetsDirty {
		b.budgets, b.budgetsDirty = maps.Clone(b.budgets), true
	}
	if put(&b.budgets, namespace, all); len(all) == 0 {
		delete(b.budgets, namespace)
	}
}

// DisruptionBudgets yields the budgets of the namespace, in order of name. One that is too large
// selects every pod and allows no disruption.
func (v *View) DisruptionBudgets(namespace string) iter.Seq[*DisruptionBudget] {
	return slices.Values(v.budgets[namespace])
}
