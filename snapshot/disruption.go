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

// Tenants write PodDisruptionBudgets, so one of them, and all of a namespace together, have limits.
// Beyond a limit, all pods of the namespace count as pods that may not be disrupted. That is safe:
// a budget is only a preference in preemption, so such a pod is still evicted if nothing else
// helps; no pod is disrupted that a budget may protect; and whoever can write budgets gains
// nothing, because a small one can do the same.
const (
	// maxBudget is how much memory one budget takes, in bytes: tens of times that of a usual one.
	maxBudget = 16 << 10
	// maxBudgets is how much memory the budgets of one namespace take, in bytes. It bounds the time
	// to find those that select a pod.
	maxBudgets = 1 << 20
)

// DisruptionBudget is what preemption reads of a PodDisruptionBudget. It is immutable.
type DisruptionBudget struct {
	name      string
	allowed   int32
	selector  labels.Selector // nil: every pod
	disrupted map[string]struct{}
	size      int64
}

// newDisruptionBudget keeps nothing of a budget that is too large, except its name.
func newDisruptionBudget(from *policyv1.PodDisruptionBudget) *DisruptionBudget {
	b := &DisruptionBudget{name: from.Name}
	if size := SizeOf(b) + SizeOf(from.Spec.Selector) + SizeOf(from.Status.DisruptedPods); size <= maxBudget {
		b.size = size
	} else {
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

// Name returns the budget's name. It is empty for a budget that stands for all of its namespace.
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

// budgets are the budgets of one namespace. size is the sum of their sizes, and large counts those
// that are too large, which have no selector and size 0.
type budgets struct {
	byName map[string]*DisruptionBudget
	size   int64
	large  int
}

// set replaces the budget with the name. Nil removes it.
func (b *budgets) set(name string, budget *DisruptionBudget) {
	if old := b.byName[name]; old != nil {
		b.size -= old.size
		if old.selector == nil {
			b.large--
		}
	}
	if budget == nil {
		delete(b.byName, name)
		return
	}
	b.byName[name] = budget
	if b.size += budget.size; budget.selector == nil {
		b.large++
	}
}

// published returns what a View has, in order of name.
func (b *budgets) published() []*DisruptionBudget {
	if b.large > 0 || b.size > maxBudgets {
		return []*DisruptionBudget{{}} // selects every pod, and allows no disruption
	}
	return slices.SortedFunc(maps.Values(b.byName), func(x, y *DisruptionBudget) int { return cmp.Compare(x.name, y.name) })
}

// SetDisruptionBudget adds the budget, or replaces the one with the same namespace and name. It
// ignores a budget of which nothing has changed that preemption reads. It does not keep the object.
// It returns false if the budget is too large: then all pods of the namespace count as pods that
// may not be disrupted.
func (b *Builder) SetDisruptionBudget(budget *policyv1.PodDisruptionBudget) bool {
	next := newDisruptionBudget(budget)
	of := b.budgets[budget.Namespace]
	if of == nil {
		of = &budgets{byName: map[string]*DisruptionBudget{}}
		if b.budgets == nil {
			b.budgets = map[string]*budgets{}
		}
		b.budgets[budget.Namespace] = of
	}
	if old := of.byName[budget.Name]; old == nil || !reflect.DeepEqual(old, next) {
		of.set(budget.Name, next)
		b.changeBudgets(budget.Namespace)
	}
	return next.selector != nil
}

// DeleteDisruptionBudget removes the budget. It ignores an unknown one.
func (b *Builder) DeleteDisruptionBudget(key types.NamespacedName) {
	of := b.budgets[key.Namespace]
	if of == nil || of.byName[key.Name] == nil {
		return
	}
	if of.set(key.Name, nil); len(of.byName) == 0 {
		delete(b.budgets, key.Namespace)
	}
	b.changeBudgets(key.Namespace)
}

func (b *Builder) changeBudgets(namespace string) {
	if b.dirtyBudgets == nil {
		b.dirtyBudgets = map[string]struct{}{}
	}
	b.dirtyBudgets[namespace] = struct{}{}
}

// publishBudgets returns the budgets of the last View, which may be nil, with those that have
// changed.
func (b *Builder) publishBudgets(last map[string][]*DisruptionBudget) map[string][]*DisruptionBudget {
	if len(b.dirtyBudgets) == 0 {
		return last
	}
	next := maps.Clone(last)
	if next == nil {
		next = map[string][]*DisruptionBudget{}
	}
	for namespace := range b.dirtyBudgets {
		if of := b.budgets[namespace]; of != nil {
			next[namespace] = of.published()
		} else {
			delete(next, namespace)
		}
	}
	clear(b.dirtyBudgets)
	return next
}

// DisruptionBudgets yields the budgets of the namespace, in order of name. If one of them is too
// large, or all of them together are, it yields one without a name that selects every pod and
// allows no disruption.
func (v *View) DisruptionBudgets(namespace string) iter.Seq[*DisruptionBudget] {
	return slices.Values(v.budgets[namespace])
}
