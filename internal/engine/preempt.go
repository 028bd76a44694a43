package engine

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/snapshot"
)

// The search for a smaller set of victims tries at most maxTries sets on one node, and about
// maxTriesInAll in one request.
const (
	maxTries      = 1000
	maxTriesInAll = 20000
)

// PreemptRequest is the input of Preempt.
type PreemptRequest struct {
	Request    // its Nodes are not read
	Candidates []Candidate
	// Enough, if not nil, returns true when the response is due: no further candidate is evaluated once one is found,
	// and sets of victims are not made smaller. The engine calls it repeatedly. Once true, it stays true.
	Enough func() bool
}

// Candidate is a node on which kube-scheduler proposes to evict pods.
type Candidate struct {
	// Node is nil if it is unknown.
	Node *snapshot.Node
	// Name is the node's name, even if Node is nil.
	Name string
	// Victims are the pods that kube-scheduler proposes to evict, the most important first. All of
	// them must be evicted, possibly for reasons other than our policies. There are none if the pod
	// fits as far as kube-scheduler knows, and only our policies reject it.
	Victims []types.UID
	// PDBViolations is how many of the victims violate a PodDisruptionBudget.
	PDBViolations int64
}

// Preempt decides for each candidate whether the pod passes every policy's Filter after evictions
// there, and returns the candidates to keep.
//
// A candidate that passes without its victims is kept unchanged, or dropped if it has none.
// Otherwise Preempt adds pods of lower priority to the victims; see the package documentation for
// the rules. It drops a candidate on which evicting all of them is not enough. It never removes
// victims. Pods with a deletionTimestamp count as gone, and are never added.
//
// Nominated pods count as in [Engine.Filter] once the victims have ended, except uncertain ones: counting these would
// evict more pods than necessary.
//
// Preempt does not change the candidates passed to it. The error is as for [Engine.Filter];
// result.Record is always set, and nothing else of result is.
func (e *Engine) Preempt(ctx context.Context, req PreemptRequest, result *Result) ([]Candidate, error) {
	var kept []Candidate
	c, _ := e.Begin(ctx, req.Pod, req.View) // decide returns the error
	err := c.decide(ctx, nil, nil, result, func() error {
		p := preemption{
			Cycle:  c,
			tries:  min(maxTries, maxTriesInAll/max(len(req.Candidates), 1)),
			enough: func() bool { return req.Enough != nil && req.Enough() },
		}
		var trials []trial
		err := c.whole(func() (err error) {
			trials, err = p.evaluate(ctx, req.Candidates)
			return err
		})
		if err != nil {
			return err
		}
		kept = make([]Candidate, 0, len(trials))
		for i := range trials {
			c, noted := trials[i].result()
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

// preemption holds what the candidates of one request share.
type preemption struct {
	*Cycle
	tries  int // for each node
	enough func() bool
	failed error // of a policy
}

// evaluate finds the pods to evict on each candidate: first a set of victims for each, then smaller sets. It starts with
// the candidates that kube-scheduler prefers, because it may run out of time.
func (p *preemption) evaluate(ctx context.Context, candidates []Candidate) ([]trial, error) {
	trials := make([]trial, len(candidates))
	found := false
	for _, i := range bestFirst(candidates) {
		t := &trials[i]
		if *t = (trial{candidate: candidates[i]}); found && p.enough() {
			t.dropped = "was not evaluated in time"
			continue
		}
		p.begin(ctx, t)
		if err := p.stopped(ctx); err != nil {
			return nil, err // the last candidate may be incomplete
		}
		found = found || t.dropped == ""
	}
	evaluated := make([]Candidate, len(trials))
	for i := range trials {
		evaluated[i], _ = trials[i].result()
	}
	for _, i := range bestFirst(evaluated) {
		if p.enough() {
			break
		}
		trials[i].shrink()
		if err := p.stopped(ctx); err != nil {
			return nil, err
		}
	}
	return trials, nil
}

// stopped returns why the request ends without a result: a policy has failed, or ctx has ended.
func (p *preemption) stopped(ctx context.Context) error { return cmp.Or(p.failed, context.Cause(ctx)) }

// fits reports whether the pod fits on the node, which may be a changed copy. After a failure it does not, and the failure is kept.
func (p *preemption) fits(n *snapshot.Node) (fits bool) {
	if p.failed == nil {
		fits, p.failed = p.passesBeside(n, true)
	}
	return fits
}

// bestFirst returns the indices of the candidates in the order of kube-scheduler's preference.
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

// trial is the evaluation of one candidate.
type trial struct {
	candidate Candidate
	dropped   string                    // why the candidate is dropped; "" if it is not
	given     map[types.UID]*corev1.Pod // its victims; nil: not on the node, as far as the view shows
	evictions evictions                 // of them
	// pods are those that can be evicted in addition, in the order of eviction; breaking are the last of them, whose
	// eviction violates a budget; and chosen are those to evict.
	pods, breaking, chosen []*corev1.Pod
	// passes reports whether the pod fits after evicting all these pods.
	passes func(evicted ...[]*corev1.Pod) bool
	tries  int // remaining for search
	enough func() bool
}

// begin finds a set of pods to evict of which none can be spared, or why the candidate is dropped.
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
	rest := c.Node.Without(func(pod *corev1.Pod) bool {
		_, victim := t.given[pod.UID]
		return victim || pod.DeletionTimestamp != nil
	})
	if p.fits(rest) {
		if len(c.Victims) == 0 {
			// kube-scheduler treats a candidate without victims as an error, and no eviction is needed.
			t.dropped = "needs no eviction"
		}
		return
	}
	t.evictions = newEvictions(p.view)
	for _, pod := range c.Node.Pods {
		if _, victim := t.given[pod.UID]; victim {
			t.given[pod.UID] = pod
			t.evictions.count(pod)
		}
	}
	var eligible []*corev1.Pod
	for _, pod := range rest.Pods {
		if corev1helpers.PodPriority(pod) < corev1helpers.PodPriority(p.pod) {
			eligible = append(eligible, pod)
		}
	}
	t.tries, t.enough = p.tries, p.enough
	count, evictedAt := 0, make(map[*corev1.Pod]int, len(eligible))
	t.passes = func(evicted ...[]*corev1.Pod) bool {
		if p.stopped(ctx) != nil {
			return false
		}
		count++
		for _, pods := range evicted {
			for _, pod := range pods {
				evictedAt[pod] = count
			}
		}
		left := rest.Without(func(pod *corev1.Pod) bool { return evictedAt[pod] == count })
		return p.fits(left)
	}
	if len(eligible) == 0 || !t.passes(eligible) {
		t.dropped = "does not fit even without all pods of lower priority"
		return
	}
	harmless, breaking := t.evictions.split(slices.SortedStableFunc(slices.Values(eligible), CompareImportance))
	t.pods, t.breaking = slices.Concat(harmless, breaking), breaking
	t.spare()
}

// spare removes pods from chosen, starting with the last, if the pod fits without evicting them. It tries several at a
// time: usually few pods are evicted, and a pod that holds nothing the policies count can always be spared.
func (t *trial) spare() {
	for end := len(t.pods); end > 0; {
		// can is a number of pods that can be spared, and cannot is one that is too large.
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

// shrink replaces chosen with a smaller set, if there is one.
func (t *trial) shrink() {
	if len(t.chosen) < 2 {
		return
	}
	limit := HighestPriority(t.chosen)
	others := slices.DeleteFunc(slices.Clone(t.pods), func(p *corev1.Pod) bool {
		return corev1helpers.PodPriority(p) > limit || slices.Contains(t.breaking, p) && !slices.Contains(t.chosen, p)
	})
	for size := 1; size < len(t.chosen) && t.tries > 0 && !t.enough(); size++ {
		if smaller := t.search(others, size, nil); smaller != nil {
			t.chosen = smaller
		}
	}
}

// search returns chosen with size more of the pods, so that the pod fits, or nil if there is no
// such set or no tries are left. It tries sets in an order in which the last pod of the set comes
// as early as possible, then the last but one, and so on. It tries nothing if evicting all pods is
// not enough.
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

// result returns the candidate with the chosen pods added to its victims, and the record of it.
func (t *trial) result() (Candidate, decision.Preemption) {
	c, noted := t.candidate, decision.Preemption{Node: t.candidate.Name, Given: len(t.candidate.Victims), Dropped: t.dropped}
	if len(t.chosen) == 0 {
		return c, noted
	}
	added := slices.SortedStableFunc(slices.Values(t.chosen), CompareImportance)
	slices.Reverse(added)
	evictions := t.evictions.clone()
	c.Victims = slices.Clone(c.Victims)
	for _, pod := range added {
		if evictions.count(pod) {
			c.PDBViolations++
		}
		// kube-scheduler expects the most important victim first. Those added before are no less important.
		at := slices.IndexFunc(c.Victims, func(uid types.UID) bool {
			victim := t.given[uid]
			return victim != nil && CompareImportance(victim, pod) < 0
		})
		if at < 0 {
			at = len(c.Victims)
		}
		c.Victims = slices.Insert(c.Victims, at, pod.UID)
		noted.Added = append(noted.Added, pod.Namespace+"/"+pod.Name)
	}
	return c, noted
}

// HighestPriority returns the highest priority of the pods; math.MinInt32 if there are none.
func HighestPriority(pods []*corev1.Pod) int32 {
	top := int32(math.MinInt32)
	for _, p := range pods {
		top = max(top, corev1helpers.PodPriority(p))
	}
	return top
}

// CompareImportance orders pods from the least to the most important, as kube-scheduler's
// MoreImportantPod does: a pod of higher priority is more important, then one that started earlier.
func CompareImportance(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(corev1helpers.PodPriority(a), corev1helpers.PodPriority(b)), StartOf(b).Compare(StartOf(a)))
}

// StartOf returns when the pod started; a pod that has not started is the newest.
func StartOf(p *corev1.Pod) time.Time {
	if p.Status.StartTime == nil {
		return time.Unix(1<<60, 0)
	}
	return p.Status.StartTime.Time
}

// evictions counts evictions against PodDisruptionBudgets, as kube-scheduler does. It reads only the budgets in the namespaces of the evicted
// pods.
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

// ViolatesBudgets reports whether the eviction of all these pods violates a PodDisruptionBudget of the View.
func ViolatesBudgets(view *snapshot.View, pods []*corev1.Pod) bool {
	_, breaking := newEvictions(view).split(pods)
	return len(breaking) > 0
}
