package engine

import (
	"cmp"
	"context"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/snapshot"
)

// maxTries bounds how many sets of pods are tried on one node in search of one
// smaller than the first that was found.
const maxTries = 2000

// Candidate is a node on which kube-scheduler would evict pods to make room.
type Candidate struct {
	// Node is nil when it is not known.
	Node *snapshot.Node
	// Name is the node's name, also when Node is nil.
	Name string
	// Victims are the pods kube-scheduler means to evict. It needs every one of
	// them gone, for reasons that may have nothing to do with our policies.
	Victims []types.UID
	// PDBViolations is how many of the victims break a PodDisruptionBudget.
	PDBViolations int64
}

// Preempt decides for each candidate node whether evicting pods there makes room
// for the pod by every policy's Filter, and returns the candidates to keep.
//
// A candidate that passes without its victims is kept as it is. Otherwise pods
// of lower priority than the pod's are added to the victims; which ones, is told
// at [choose]. A candidate on which even all of them would not do is dropped.
// Victims are never taken away. Pods that are being deleted count as gone, and
// are never added.
//
// The error is as for [Engine.Filter]; result.Record is set in any case.
func (e *Engine) Preempt(ctx context.Context, pod *corev1.Pod, view *snapshot.View, candidates []Candidate, result *Result) ([]Candidate, error) {
	req := Request{Pod: pod, View: view}
	var kept []Candidate
	err := e.run(ctx, req, result, func(ev *evaluation) error {
		kept = kept[:0]
		result.Record.Asked = 0
		result.Record.Preemptions = nil
		for _, c := range candidates {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			c, noted := ev.preempt(ctx, c)
			result.Record.Preemptions = append(result.Record.Preemptions, noted)
			if noted.Dropped == "" {
				kept = append(kept, c)
			}
		}
		ev.running = -1
		if ctx.Err() != nil {
			return context.Cause(ctx) // the last candidate may have been judged in part only
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return kept, nil
}

func (ev *evaluation) preempt(ctx context.Context, c Candidate) (Candidate, decision.Preemption) {
	noted := decision.Preemption{Node: c.Name, Given: len(c.Victims)}
	if c.Node == nil {
		noted.Dropped = NodeUnknown.Text
		return c, noted
	}
	given := make(map[types.UID]bool, len(c.Victims))
	for _, uid := range c.Victims {
		given[uid] = true
	}
	leaving := func(p *corev1.Pod) bool { return given[p.UID] || p.DeletionTimestamp != nil }
	rest := c.Node.Without(leaving)
	if ev.passes(rest) {
		return c, noted
	}
	var eligible []*corev1.Pod
	for _, p := range rest.Pods {
		if priority(p) < priority(ev.pod) {
			eligible = append(eligible, p)
		}
	}
	passes := func(extra []*corev1.Pod) bool {
		return ctx.Err() == nil && ev.passes(rest.Without(func(p *corev1.Pod) bool { return slices.Contains(extra, p) }))
	}
	budgets := newBudgets(ev.key.view.DisruptionBudgets())
	for _, p := range c.Node.Pods {
		if given[p.UID] {
			budgets.evict(p)
		}
	}
	added := choose(eligible, budgets, passes)
	if added == nil {
		noted.Dropped = "does not fit even without all pods of lower priority"
		return c, noted
	}
	c.Victims = slices.Clone(c.Victims)
	for _, p := range added {
		if budgets.evict(p) {
			c.PDBViolations++
		}
		c.Victims = append(c.Victims, p.UID)
		noted.Added = append(noted.Added, p.Namespace+"/"+p.Name)
	}
	return c, noted
}

// choose returns the pods to evict, or nil if even evicting all the eligible
// ones would not do.
//
// Pods whose eviction breaks a disruption budget are spared before all others,
// and then pods are spared in order of importance, as kube-scheduler does:
// higher priority first, then the one that has run longer. The set that remains
// cannot spare any of its pods. If it has several, smaller sets of pods no more
// important than the most important one in it are tried, so that one pod is
// evicted rather than two that free as much; the search is bounded by maxTries.
func choose(eligible []*corev1.Pod, budgets budgets, passes func([]*corev1.Pod) bool) []*corev1.Pod {
	if len(eligible) == 0 || !passes(eligible) {
		return nil
	}
	pods := slices.Clone(eligible)
	slices.SortStableFunc(pods, moreImportant)
	breaking := budgets.breaking(pods)
	// The order of sparing; what is at the end is evicted first.
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Compare(breakingFirst(breaking[a.UID]), breakingFirst(breaking[b.UID]))
	})
	chosen := slices.Clone(pods)
	for _, p := range pods {
		at := slices.Index(chosen, p)
		if without := slices.Delete(slices.Clone(chosen), at, at+1); passes(without) {
			chosen = without
		}
	}
	if len(chosen) == 0 {
		return nil // fits without evicting any: the filter contradicts itself
	}
	limit := highest(chosen)
	cheap := slices.DeleteFunc(slices.Clone(pods[slices.Index(pods, chosen[0]):]), func(p *corev1.Pod) bool { return priority(p) > limit })
	slices.Reverse(cheap)
	tries := maxTries
	for size := 1; size < len(chosen); size++ {
		if smaller := search(cheap, nil, size, passes, &tries); smaller != nil {
			return smaller
		}
	}
	return chosen
}

// search tries the sets of the given size, least important pods first, until one
// passes or no tries are left.
func search(pods, chosen []*corev1.Pod, size int, passes func([]*corev1.Pod) bool, tries *int) []*corev1.Pod {
	if size == 0 {
		*tries--
		if passes(chosen) {
			return slices.Clone(chosen)
		}
		return nil
	}
	for i := 0; i+size <= len(pods) && *tries > 0; i++ {
		if found := search(pods[i+1:], append(slices.Clip(chosen), pods[i]), size-1, passes, tries); found != nil {
			return found
		}
	}
	return nil
}

func breakingFirst(breaks bool) int {
	if breaks {
		return 0
	}
	return 1
}

func highest(pods []*corev1.Pod) int32 {
	top := int32(math.MinInt32)
	for _, p := range pods {
		top = max(top, priority(p))
	}
	return top
}

func priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// moreImportant orders pods as kube-scheduler's MoreImportantPod does.
func moreImportant(a, b *corev1.Pod) int {
	if c := cmp.Compare(priority(b), priority(a)); c != 0 {
		return c
	}
	return started(a).Compare(started(b).Time)
}

// started is when the pod started; a pod that has not is the newest.
func started(p *corev1.Pod) metav1.Time {
	if p.Status.StartTime == nil {
		return metav1.Unix(1<<60, 0)
	}
	return *p.Status.StartTime
}

// budgets counts evictions against PodDisruptionBudgets, as kube-scheduler does:
// a budget with an empty selector matches no pod, and a pod the API server has
// already counted as disrupted is not counted again.
type budgets []budget

type budget struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
	allowed  int32
}

func newBudgets(pdbs []*policyv1.PodDisruptionBudget) budgets {
	bs := make(budgets, 0, len(pdbs))
	for _, pdb := range pdbs {
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err != nil || selector.Empty() {
			continue // matches nothing
		}
		bs = append(bs, budget{pdb, selector, pdb.Status.DisruptionsAllowed})
	}
	return bs
}

// evict counts the pod's eviction and says whether it breaks a budget.
func (bs budgets) evict(p *corev1.Pod) bool {
	breaks := false
	for i := range bs {
		b := &bs[i]
		if b.Namespace != p.Namespace || len(p.Labels) == 0 || !b.selector.Matches(labels.Set(p.Labels)) {
			continue
		}
		if _, counted := b.Status.DisruptedPods[p.Name]; counted {
			continue
		}
		b.allowed--
		breaks = breaks || b.allowed < 0
	}
	return breaks
}

// breaking says, by UID, which of the pods would break a budget if all were
// evicted in order; the receiver is not changed.
func (bs budgets) breaking(pods []*corev1.Pod) map[types.UID]bool {
	trial := slices.Clone(bs)
	breaking := map[types.UID]bool{}
	for _, p := range pods {
		if trial.evict(p) {
			breaking[p.UID] = true
		}
	}
	return breaking
}
