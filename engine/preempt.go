package engine

import (
	"cmp"
	"context"
	"maps"
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

// PreemptRequest asks which candidate nodes to keep, and whom to evict there.
type PreemptRequest struct {
	Request    // its Nodes are not read
	Candidates []Candidate
	// Enough, if not nil, says that the answer should come soon: when a candidate has been found, no more are judged, and a set
	// of victims that does is not made smaller. It is asked again and again, and does not change its mind.
	Enough func() bool
}

// Candidate is a node on which kube-scheduler would evict pods to make room.
type Candidate struct {
	// Node is nil when it is not known.
	Node *snapshot.Node
	// Name is the node's name, also when Node is nil.
	Name string
	// Victims are the pods kube-scheduler means to evict, most important first.
	// It needs every one of them gone, for reasons that may have nothing to do
	// with our policies. There are none when, as far as it sees, the pod fits
	// already, and only the policies are in the way.
	Victims []types.UID
	// PDBViolations is how many of the victims break a PodDisruptionBudget.
	PDBViolations int64
}

// Preempt decides for each candidate node whether evicting pods there makes room
// for the pod by every policy's Filter, and returns the candidates to keep.
//
// A candidate that passes without its victims is kept as it is, or dropped if it
// has none. Otherwise pods of lower priority than the pod's are added to the
// victims; see the package documentation for the rules. A candidate on which
// even all of them would not do is dropped. Victims are never taken away. Pods
// that are being deleted count as gone, and are never added.
//
// Pods that are nominated to a node count there as in [Engine.Filter], but for those of which it is uncertain: more pods
// would be evicted for them than need be.
//
// The candidates given are not changed. The error is as for [Engine.Filter];
// result.Record is set in any case, and is all that is set.
func (e *Engine) Preempt(ctx context.Context, req PreemptRequest, result *Result) ([]Candidate, error) {
	var kept []Candidate
	err := e.run(ctx, Request{Pod: req.Pod, View: req.View}, result, func(ev *evaluation) error {
		p := preemption{
			evaluation:  ev,
			nominations: e.nominations(req.View, req.Nominations),
			budgets:     sync.OnceValue(func() budgets { return newBudgets(req.View.DisruptionBudgets()) }),
			tries:       min(maxTries, maxTriesInAll/max(len(req.Candidates), 1)),
			enough:      func() bool { return req.Enough != nil && req.Enough() },
		}
		trials, err := p.judge(ctx, req.Candidates)
		if err != nil {
			return err
		}
		kept = make([]Candidate, 0, len(trials))
		for i := range trials {
			c, noted := trials[i].answer()
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
	enough      func() bool
}

// judge finds out whom to evict on each candidate: first a set of victims for each, then smaller sets. The candidates that
// kube-scheduler is likely to choose come first, because time may end both.
func (p *preemption) judge(ctx context.Context, candidates []Candidate) ([]trial, error) {
	trials := make([]trial, len(candidates))
	found := false
	for _, i := range bestFirst(candidates) {
		t := &trials[i]
		if *t = (trial{candidate: candidates[i]}); found && p.enough() {
			t.dropped = "was not judged in time"
			continue
		}
		p.begin(ctx, t)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx) // it may have been judged in part only
		}
		found = found || t.dropped == ""
	}
	judged := make([]Candidate, len(trials))
	for i := range trials {
		judged[i], _ = trials[i].answer()
	}
	for _, i := range bestFirst(judged) {
		if p.enough() {
			break
		}
		trials[i].shrink()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return trials, nil
}

// bestFirst returns the indices of the candidates, the ones that kube-scheduler is likely to choose first.
func bestFirst(candidates []Candidate) []int {
	order, costs := make([]int, len(candidates)), make([]cost, len(candidates))
	for i, c := range candidates {
		order[i] = i
		if c.Node != nil {
			costs[i] = costOf(c)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return costs[a].compare(costs[b]) })
	return order
}

// trial is a candidate that is being judged.
type trial struct {
	candidate Candidate
	dropped   string                    // why it is no candidate any more
	given     map[types.UID]*corev1.Pod // its victims; nil: not on the node, as far as we know
	budgets   budgets                   // after their eviction
	// pods are those that may be evicted as well, the first to be evicted first; breaking are the last of them, whose eviction
	// breaks a budget; and chosen are the ones to evict.
	pods, breaking, chosen []*corev1.Pod
	// passes says whether evicting all these pods would do.
	passes func(evicted ...[]*corev1.Pod) bool
	tries  int // left for search
	enough func() bool
}

// begin finds pods to evict, of which none can be spared, or why the candidate is to be dropped.
func (p *preemption) begin(ctx context.Context, t *trial) {
	c := &t.candidate
	if c.Node == nil {
		t.dropped = NodeUnknown.Text
		return
	}
	t.given = make(map[types.UID]*corev1.Pod, len(c.Victims))
	for _, uid := range c.Victims {
		t.given[uid] = nil
	}
	rest := p.nominations.counting(c.Node, p.pod, true).Without(func(pod *corev1.Pod) bool {
		_, victim := t.given[pod.UID]
		return victim || pod.DeletionTimestamp != nil
	})
	if p.passes(rest) {
		if len(c.Victims) == 0 {
			// kube-scheduler takes a candidate without victims for an error, and evicting somebody would be for nothing.
			t.dropped = "needs no eviction"
		}
		return
	}
	t.budgets = slices.Clone(p.budgets())
	for _, pod := range c.Node.Pods {
		if _, victim := t.given[pod.UID]; victim {
			t.given[pod.UID] = pod
			t.budgets.evict(pod)
		}
	}
	var eligible []*corev1.Pod
	for _, pod := range rest.Pods {
		if snapshot.Priority(pod) < snapshot.Priority(p.pod) {
			eligible = append(eligible, pod)
		}
	}
	t.tries, t.enough = p.tries, p.enough
	count, evictedAt := 0, make(map[*corev1.Pod]int, len(eligible))
	t.passes = func(evicted ...[]*corev1.Pod) bool {
		if ctx.Err() != nil {
			return false
		}
		count++
		for _, pods := range evicted {
			for _, pod := range pods {
				evictedAt[pod] = count
			}
		}
		return p.passes(rest.Without(func(pod *corev1.Pod) bool { return evictedAt[pod] == count }))
	}
	if len(eligible) == 0 || !t.passes(eligible) {
		t.dropped = "does not fit even without all pods of lower priority"
		return
	}
	harmless, breaking := t.budgets.split(slices.SortedStableFunc(slices.Values(eligible), compareImportance))
	t.pods, t.breaking = slices.Concat(harmless, breaking), breaking
	t.spare()
}

// spare leaves those pods chosen that remain when each, from the last on, is spared if evicting the others would do. Pods are
// spared several at a time: mostly few are evicted, and a pod that holds nothing the policies count can always be spared.
func (t *trial) spare() {
	for end := len(t.pods); end > 0; {
		// So many can be spared, and so many cannot.
		can, cannot := 0, end+1
		for step := 1; can+1 < cannot; step *= 2 {
			if n := min(can+step, (can+cannot)/2); t.passes(t.pods[:end-n], t.chosen) {
				can = n
			} else {
				cannot = n
			}
		}
		if end -= can; end > 0 {
			end--
			t.chosen = append(t.chosen, t.pods[end])
		}
	}
}

// shrink chooses fewer pods, if there are some that do.
func (t *trial) shrink() {
	if len(t.chosen) < 2 {
		return
	}
	limit := highest(t.chosen)
	others := slices.DeleteFunc(slices.Clone(t.pods), func(p *corev1.Pod) bool {
		return snapshot.Priority(p) > limit || slices.Contains(t.breaking, p) && !slices.Contains(t.chosen, p)
	})
	for size := 1; size < len(t.chosen) && t.tries > 0 && !t.enough(); size++ {
		if smaller := t.search(others, size, nil); smaller != nil {
			t.chosen = smaller
		}
	}
}

// search returns chosen with as many more of the pods as size says, so that it
// passes, or nil when there is no such set or no tries are left. The sets are
// tried in such an order that the last pod in them is as early as possible, then
// the last but one, and so on. Where evicting all would not do, no set is tried.
func (t *trial) search(pods []*corev1.Pod, size int, chosen []*corev1.Pod) []*corev1.Pod {
	if size == 0 {
		t.tries--
		if !t.passes(chosen) {
			return nil
		}
		return chosen
	}
	if len(pods) > size {
		t.tries--
		if !t.passes(chosen, pods) {
			return nil
		}
	}
	for last := size - 1; last < len(pods) && t.tries > 0; last++ {
		if found := t.search(pods[:last], size-1, append(slices.Clip(chosen), pods[last])); found != nil {
			return found
		}
	}
	return nil
}

// answer is the candidate with the pods chosen among its victims, and the record of it.
func (t *trial) answer() (Candidate, decision.Preemption) {
	c, noted := t.candidate, decision.Preemption{Node: t.candidate.Name, Given: len(t.candidate.Victims), Dropped: t.dropped}
	if len(t.chosen) == 0 {
		return c, noted
	}
	added := slices.SortedStableFunc(slices.Values(t.chosen), compareImportance)
	slices.Reverse(added)
	victims, budgets := maps.Clone(t.given), slices.Clone(t.budgets)
	c.Victims = slices.Clone(c.Victims)
	for _, pod := range added {
		if budgets.evict(pod) {
			c.PDBViolations++
		}
		// kube-scheduler takes the first victim for the most important one.
		at := slices.IndexFunc(c.Victims, func(uid types.UID) bool {
			victim := victims[uid]
			return victim != nil && compareImportance(victim, pod) < 0
		})
		if at < 0 {
			at = len(c.Victims)
		}
		c.Victims = slices.Insert(c.Victims, at, pod.UID)
		victims[pod.UID] = pod
		noted.Added = append(noted.Added, pod.Namespace+"/"+pod.Name)
	}
	return c, noted
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
