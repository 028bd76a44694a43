package engine

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/snapshot"
)

// In search of a set of pods smaller than the first that was found, at most
// maxTries sets are tried on one node, and about maxTriesInAll in one request.
const (
	maxTries      = 1000
	maxTriesInAll = 20000
)

// Candidate is a node on which kube-scheduler would evict pods to make room.
type Candidate struct {
	// Node is nil when it is not known.
	Node *snapshot.Node
	// Name is the node's name, also when Node is nil.
	Name string
	// Victims are the pods kube-scheduler means to evict, most important first.
	// It needs every one of them gone, for reasons that may have nothing to do
	// with our policies.
	Victims []types.UID
	// PDBViolations is how many of the victims break a PodDisruptionBudget.
	PDBViolations int64
}

// Preempt decides for each candidate node whether evicting pods there makes room
// for the pod by every policy's Filter, and returns the candidates to keep.
//
// A candidate that passes without its victims is kept as it is. Otherwise pods
// of lower priority than the pod's are added to the victims; which ones, is told
// in the package documentation. A candidate on which even all of them would not
// do is dropped. Victims are never taken away. Pods that are being deleted count
// as gone, and are never added.
//
// Pods that are nominated to a node count there as in [Engine.Filter], but for those of which it is uncertain: more pods
// would be evicted for them than need be.
//
// The request's Nodes are not read. The candidates given are not changed. The error is as for [Engine.Filter];
// result.Record is set in any case, and is all that is set.
func (e *Engine) Preempt(ctx context.Context, req Request, candidates []Candidate, result *Result) ([]Candidate, error) {
	var kept []Candidate
	err := e.run(ctx, Request{Pod: req.Pod, View: req.View}, result, func(ev *evaluation) error {
		kept = make([]Candidate, 0, len(candidates))
		p := preemption{
			evaluation:  ev,
			nominations: e.nominations(req.View, req.Nominations),
			budgets:     sync.OnceValue(func() budgets { return newBudgets(req.View.DisruptionBudgets()) }),
			tries:       min(maxTries, maxTriesInAll/max(len(candidates), 1)),
		}
		for _, c := range candidates {
			c, noted := p.decide(ctx, c)
			if ctx.Err() != nil {
				return context.Cause(ctx) // c may have been judged in part only
			}
			result.Record.Preemptions = append(result.Record.Preemptions, noted)
			if noted.Dropped == "" {
				kept = append(kept, c)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return kept, nil
}

// preemption is what the candidates of one request have in common.
type preemption struct {
	*evaluation
	nominations *nominations
	budgets     func() budgets // before any eviction
	tries       int            // for each node
}

func (p *preemption) decide(ctx context.Context, c Candidate) (Candidate, decision.Preemption) {
	noted := decision.Preemption{Node: c.Name, Given: len(c.Victims)}
	if c.Node == nil {
		noted.Dropped = NodeUnknown.Text
		return c, noted
	}
	given := make(map[types.UID]*corev1.Pod, len(c.Victims)) // nil: not on the node, as far as we know
	for _, uid := range c.Victims {
		given[uid] = nil
	}
	rest := p.nominations.counting(c.Node, p.pod, true).Without(func(pod *corev1.Pod) bool {
		_, victim := given[pod.UID]
		return victim || pod.DeletionTimestamp != nil
	})
	if p.passes(rest) {
		return c, noted
	}
	budgets := slices.Clone(p.budgets())
	for _, pod := range c.Node.Pods {
		if _, victim := given[pod.UID]; victim {
			given[pod.UID] = pod
			budgets.evict(pod)
		}
	}
	var eligible []*corev1.Pod
	for _, pod := range rest.Pods {
		if snapshot.Priority(pod) < snapshot.Priority(p.pod) {
			eligible = append(eligible, pod)
		}
	}
	added := choose(eligible, budgets, p.tries, func(evicted []*corev1.Pod) bool {
		return ctx.Err() == nil && p.passes(rest.Without(func(pod *corev1.Pod) bool { return slices.Contains(evicted, pod) }))
	})
	if added == nil {
		noted.Dropped = "does not fit even without all pods of lower priority"
		return c, noted
	}
	c.Victims = slices.Clone(c.Victims)
	for _, pod := range added {
		if budgets.evict(pod) {
			c.PDBViolations++
		}
		// kube-scheduler takes the first victim for the most important one.
		at := slices.IndexFunc(c.Victims, func(uid types.UID) bool {
			victim := given[uid]
			return victim != nil && compareImportance(victim, pod) < 0
		})
		if at < 0 {
			at = len(c.Victims)
		}
		c.Victims = slices.Insert(c.Victims, at, pod.UID)
		given[pod.UID] = pod
		noted.Added = append(noted.Added, pod.Namespace+"/"+pod.Name)
	}
	return c, noted
}

// choose returns the pods to evict, most important first, or nil if even
// evicting all the eligible ones would not do. Which ones, is told in the package
// documentation. passes says whether evicting a set of pods would do.
func choose(eligible []*corev1.Pod, budgets budgets, tries int, passes func(evicted []*corev1.Pod) bool) []*corev1.Pod {
	if len(eligible) == 0 || !passes(eligible) {
		return nil
	}
	harmless, breaking := budgets.split(slices.SortedStableFunc(slices.Values(eligible), compareImportance))
	pods := slices.Concat(harmless, breaking) // what is at the front is evicted first
	chosen := slices.Clone(pods)
	for i := len(pods) - 1; i >= 0; i-- {
		if without := slices.Concat(chosen[:i], chosen[i+1:]); passes(without) {
			chosen = without
		}
	}
	limit := highest(chosen)
	others := slices.DeleteFunc(pods, func(p *corev1.Pod) bool {
		return snapshot.Priority(p) > limit || slices.Contains(breaking, p) && !slices.Contains(chosen, p)
	})
	for size := 1; size < len(chosen); size++ {
		if smaller := search(others, size, nil, &tries, passes); smaller != nil {
			chosen = smaller
			break
		}
	}
	slices.SortStableFunc(chosen, compareImportance)
	slices.Reverse(chosen)
	return chosen
}

// search returns chosen with as many more of the pods as size says, so that it
// passes, or nil when there is no such set or no tries are left. The sets are
// tried in such an order that the last pod in them is as early as possible, then
// the last but one, and so on.
func search(pods []*corev1.Pod, size int, chosen []*corev1.Pod, tries *int, passes func([]*corev1.Pod) bool) []*corev1.Pod {
	if size == 0 {
		*tries--
		if !passes(chosen) {
			return nil
		}
		return chosen
	}
	for last := size - 1; last < len(pods) && *tries > 0; last++ {
		if found := search(pods[:last], size-1, append(slices.Clip(chosen), pods[last]), tries, passes); found != nil {
			return found
		}
	}
	return nil
}

func highest(pods []*corev1.Pod) int32 {
	top := int32(math.MinInt32)
	for _, p := range pods {
		top = max(top, snapshot.Priority(p))
	}
	return top
}

// compareImportance orders pods from the least important to the most, as
// kube-scheduler's MoreImportantPod sees it: a higher priority is more important,
// and of equal ones the pod that started earlier.
func compareImportance(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(snapshot.Priority(a), snapshot.Priority(b)), started(b).Compare(started(a)))
}

// started is when the pod started; a pod that has not is the newest.
func started(p *corev1.Pod) time.Time {
	if p.Status.StartTime == nil {
		return time.Unix(1<<60, 0)
	}
	return p.Status.StartTime.Time
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

// split tells the pods that would break a budget, if all were evicted in order,
// from the others; the receiver is not changed. Any of the others can be evicted
// without breaking one.
func (bs budgets) split(pods []*corev1.Pod) (harmless, breaking []*corev1.Pod) {
	trial := slices.Clone(bs)
	for _, p := range pods {
		if trial.evict(p) {
			breaking = append(breaking, p)
		} else {
			harmless = append(harmless, p)
		}
	}
	return harmless, breaking
}
