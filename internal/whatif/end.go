package whatif

import (
	"cmp"
	"iter"
	"slices"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// nearest is how many of the groups whose end helps are compared with each other.
const nearest = 20

// group are pods that may end together: those of a node, or those that hold allocations in a pool.
type group struct {
	node *snapshot.Node
	pool *snapshot.Ledger // nil: of a node
	pods []leaving        // the least important first; of a pool, first those that hold the most
}

// leaving is a pod that may end.
type leaving struct {
	Holder
	pod *corev1.Pod // nil: the View does not have it
}

// ending are pods of a group without which the pod fits on the node.
type ending struct {
	*group
	pods []leaving
	on   string
}

// ends returns the fewest pods of one group without which the pod fits. First it takes as many of
// a group as needed, the least important first, and spares those that can stay; then it tries all
// smaller sets.
func (s *search) ends() ([]Remedy, error) {
	var best *ending
	var helping []*group
	for _, g := range s.groups() {
		if len(helping) == nearest {
			break
		}
		found, err := s.fewest(g)
		if err != nil {
			return nil, err
		}
		if found == nil {
			continue
		}
		helping = append(helping, g)
		if best == nil || found.compare(best) < 0 {
			best = found
		}
	}
	if best == nil {
		return nil, nil
	}
	for size := 1; size < len(best.pods) && s.left > 0; size++ {
		for _, g := range helping {
			found, err := s.ofSize(g, size)
			if err != nil {
				return nil, err
			}
			if found != nil && found.compare(best) < 0 {
				best = found
			}
		}
	}
	remedy := Remedy{Kind: End, Node: best.on}
	for i := range best.pods {
		remedy.End = append(remedy.End, best.pods[i].Holder)
	}
	if best.pool != nil {
		remedy.Pool = best.pool.Resource
		// Policies may keep sums over the nodes of the latest View that they have seen: this one is
		// no changed copy.
		_, err := s.try(s.Engine, s.pod, s.View)
		return []Remedy{remedy}, err
	}
	var err error
	remedy.Preemption, err = s.preemption(best)
	return []Remedy{remedy}, err
}

// groups returns the pods of each node that may end, first those of the nodes that come closest to
// fitting, and before them the pods that hold allocations in each pool.
func (s *search) groups() (all []*group) {
	for l := range s.View.Pools() {
		if g := s.holders(l); len(g.pods) > 0 {
			all = append(all, g)
		}
	}
	order := make([]int, len(s.selected))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return s.blocked[a].compare(&s.blocked[b]) })
	for _, i := range order {
		g := &group{node: s.selected[i]}
		for _, pod := range g.node.Pods {
			if mayEnd(pod) {
				g.pods = append(g.pods, leaving{holderOf(pod, g.node.Name), pod})
			}
		}
		if len(g.pods) > 0 {
			slices.SortStableFunc(g.pods, compareImportance)
			all = append(all, g)
		}
	}
	return all
}

// mayEnd reports whether the end of the pod makes room. One of a DaemonSet comes back at once, and
// a static pod does not end.
func mayEnd(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "DaemonSet" || o.Kind == "Node"
	})
}

// holders returns the pods other than the waiting one that have allocations in the pool.
func (s *search) holders(l *snapshot.Ledger) *group {
	g, held := &group{pool: l}, map[types.UID]int64{}
	for i := range l.Units {
		for _, c := range l.Units[i].Allocations {
			held[c.Pod] = snapshot.AddAmounts(held[c.Pod], c.Amount)
		}
	}
	for _, p := range slices.Backward(l.Pods) { // the newest allocation first
		if p.UID == s.pod.UID {
			continue
		}
		h := leaving{Holder: Holder{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Node: p.Node}}
		if n := s.View.Node(p.Node); n != nil {
			if i := slices.IndexFunc(n.Pods, func(pod *corev1.Pod) bool { return pod.UID == p.UID }); i >= 0 {
				h = leaving{holderOf(n.Pods[i], p.Node), n.Pods[i]}
			}
		}
		h.Seats = held[p.UID]
		g.pods = append(g.pods, h)
	}
	slices.SortStableFunc(g.pods, func(a, b leaving) int {
		return cmp.Or(cmp.Compare(b.Seats, a.Seats), cmp.Compare(a.Priority, b.Priority))
	})
	return g
}

// compare orders nodes by how close they come to fitting, the closest first.
func (b *blocked) compare(other *blocked) int {
	return cmp.Or(cmp.Compare(b.checks(), other.checks()), cmp.Compare(b.distance(), other.distance()))
}

// checks is how many checks reject the node.
func (b *blocked) checks() int { return len(b.rejecting) + min(len(b.lacks), 1) }

// distance is how far the node is from fitting by the first policy that rejects it.
func (b *blocked) distance() uint64 {
	if len(b.rejecting) == 0 {
		return 0
	}
	o := &b.rejecting[0]
	return uint64(max(o.Want, o.Have)) - uint64(min(o.Want, o.Have))
}

// fewest returns pods of the group of which none can stay, or nil if its end does not help.
func (s *search) fewest(g *group) (best *ending, err error) {
	helps := func(pods []leaving) bool {
		var on string
		if err == nil {
			on, err = s.fitsWithout(g, pods)
		}
		if on != "" {
			best = &ending{g, pods, on}
		}
		return on != ""
	}
	if !helps(g.pods) {
		return nil, err
	}
	sort.Search(len(g.pods), func(n int) bool { return helps(g.pods[:n]) })
	for i := len(best.pods) - 1; i >= 0; i-- {
		helps(slices.Delete(slices.Clone(best.pods), i, i+1))
	}
	return best, err
}

// ofSize returns the first set with this many pods of the group without which the pod fits, or nil.
func (s *search) ofSize(g *group, size int) (*ending, error) {
	for pods := range subsets(g.pods, size) {
		on, err := s.fitsWithout(g, pods)
		if on != "" {
			return &ending{g, slices.Clone(pods), on}, nil
		}
		if err != nil || s.left < 0 {
			return nil, err
		}
	}
	return nil, nil
}

// subsets yields the sets of this size. The slice is valid until the next one.
func subsets[T any](all []T, size int) iter.Seq[[]T] {
	set := make([]T, size)
	return func(yield func([]T) bool) {
		var from func(first, at int) bool
		from = func(first, at int) bool {
			if at == size {
				return yield(set)
			}
			for i := first; i <= len(all)-(size-at); i++ {
				set[at] = all[i]
				if !from(i+1, at+1) {
					return false
				}
			}
			return true
		}
		from(0, 0)
	}
}

// fitsWithout returns a node on which the pod fits without these pods of the group, or "". It
// spends from the budget, and returns "" if that has ended.
func (s *search) fitsWithout(g *group, pods []leaving) (on string, err error) {
	if g.pool != nil {
		return s.fitsWithoutHolders(g.pool, pods)
	}
	if len(pods) == 0 || !s.spend(changedCost+s.each) {
		return "", nil
	}
	gone := make([]*corev1.Pod, len(pods))
	for i := range pods {
		gone[i] = pods[i].pod
	}
	if s.trial.filters.LacksWithout(g.node, gone...) != "" {
		return "", nil // usually, and it is faster than to make the node
	}
	fits, err := s.trial.fits(g.node.Without(func(pod *corev1.Pod) bool { return slices.Contains(gone, pod) }))
	if err != nil || !fits {
		return "", err
	}
	return g.node.Name, nil
}

func (s *search) fitsWithoutHolders(l *snapshot.Ledger, pods []leaving) (on string, err error) {
	if len(pods) == 0 || !s.spend(s.prepare+changedCost*len(pods)) {
		return "", nil
	}
	gone, byNode := make(map[types.UID]bool, len(pods)), map[string]bool{}
	for i := range pods {
		gone[types.UID(pods[i].UID)], byNode[pods[i].Node] = true, true
	}
	var changed []*snapshot.Node
	for name := range byNode {
		if n := s.View.Node(name); n != nil {
			changed = append(changed, n.Without(func(pod *corev1.Pod) bool { return gone[pod.UID] }))
		}
	}
	view := s.View.WithPool(l.Without(func(uid types.UID) bool { return gone[uid] })).WithNodes(changed...)
	t, err := s.try(s.Engine, s.pod, view)
	if err != nil {
		return "", err
	}
	nodes := make([]*snapshot.Node, len(s.selected))
	for i, n := range s.selected {
		nodes[i] = view.At(n.Row())
	}
	n, _, err := s.fitsAny(t, nodes)
	if err != nil || n == nil {
		return "", err
	}
	return n.Name, nil
}

// compare is less than 0 if it is better that the first set ends: it has fewer pods, more of them
// are ending already, or they have lower priorities, or started later.
func (e *ending) compare(other *ending) int {
	return cmp.Or(
		cmp.Compare(len(e.pods), len(other.pods)), cmp.Compare(len(e.running()), len(other.running())),
		cmp.Compare(engine.HighestPriority(e.running()), engine.HighestPriority(other.running())),
		other.oldest().Compare(e.oldest()),
	)
}

// running are the pods that are not ending already.
func (e *ending) running() (pods []*corev1.Pod) {
	for i := range e.pods {
		if pod := e.pods[i].pod; pod != nil && pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

func (e *ending) oldest() (first time.Time) {
	for i, pod := range e.running() {
		if at := engine.StartOf(pod); i == 0 || at.Before(first) {
			first = at
		}
	}
	return first
}

// compareImportance is [engine.CompareImportance], except that pods that are ending already are the
// least important.
func compareImportance(a, b leaving) int {
	switch ending, other := a.TerminatingUntil != nil, b.TerminatingUntil != nil; {
	case ending && !other:
		return -1
	case other && !ending:
		return 1
	}
	return engine.CompareImportance(a.pod, b.pod)
}

func holderOf(pod *corev1.Pod, node string) Holder {
	return Holder{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: node,
		Priority: corev1helpers.PodPriority(pod), TerminatingUntil: pod.DeletionTimestamp,
	}
}

// preemption says whether preemption can evict the pods of a node.
func (s *search) preemption(set *ending) (Preemption, error) {
	running := set.running()
	b := s.blocked[slices.Index(s.selected, set.node)]
	switch {
	case len(running) == 0:
		return Unnecessary, nil
	case s.pod.Spec.PreemptionPolicy != nil && *s.pod.Spec.PreemptionPolicy == corev1.PreemptNever:
		return NeverPreempts, nil
	case engine.HighestPriority(running) >= corev1helpers.PodPriority(s.pod):
		return PriorityNotLower, nil
	case len(b.rejecting) > 0 && b.rejecting[0].Unresolvable:
		return NotConsidered, nil
	}
	candidate := engine.Candidate{Node: set.node, Name: set.node.Name}
	for _, pod := range slices.Backward(running) { // the most important first
		candidate.Victims = append(candidate.Victims, pod.UID)
	}
	var result engine.Result
	kept, err := s.Engine.Preempt(s.ctx, engine.PreemptRequest{
		Request: engine.Request{Pod: s.pod, View: s.View}, Candidates: []engine.Candidate{candidate},
	}, &result)
	sorted := func(uids []types.UID) []types.UID { return slices.Sorted(slices.Values(uids)) }
	switch {
	case err != nil:
		return "", err
	case len(kept) == 0 || !slices.Equal(sorted(kept[0].Victims), sorted(candidate.Victims)):
		return NotConsidered, nil
	case b.lacks == "":
		return LacksNothing, nil
	case len(engine.ViolatingBudgets(s.View, running)) > 0:
		return ViolatesBudget, nil
	}
	return Possible, nil
}
