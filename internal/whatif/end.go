package whatif

import (
	"cmp"
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

// nearest is how many of the nodes on which the end of pods helps are compared with each other.
const nearest = 20

// ending are pods of a node without which the pod fits there, the least important first.
type ending struct {
	node *snapshot.Node
	pods []*corev1.Pod
}

// ends returns few pods of one node without which the pod fits: as many as needed, the least
// important first, without those that can stay. First it looks at the nodes that come closest to
// fitting.
func (s *search) ends() ([]Remedy, error) {
	order := make([]int, len(s.selected))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return s.blocked[a].compare(&s.blocked[b]) })
	var best *ending
	helping := 0
	for _, i := range order {
		found, err := s.fewest(s.selected[i])
		if err != nil {
			return nil, err
		}
		if found == nil {
			continue
		}
		if best == nil || found.compare(best) < 0 {
			best = found
		}
		if helping++; helping == nearest {
			break
		}
	}
	if best == nil {
		return nil, nil
	}
	remedy := Remedy{Kind: End, Node: best.node.Name}
	for _, pod := range best.pods {
		remedy.End = append(remedy.End, holderOf(pod))
	}
	var err error
	remedy.Preemption, err = s.preemption(best)
	return []Remedy{remedy}, err
}

// mayEnd reports whether the end of the pod makes room. One of a DaemonSet comes back at once, and
// a static pod does not end.
func mayEnd(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "DaemonSet" || o.Kind == "Node"
	})
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

// fewest returns pods of the node of which none can stay, or nil if the end of all does not help.
func (s *search) fewest(n *snapshot.Node) (best *ending, err error) {
	pods := slices.DeleteFunc(slices.Clone(n.Pods), func(pod *corev1.Pod) bool { return !mayEnd(pod) })
	slices.SortStableFunc(pods, compareImportance)
	helps := func(pods []*corev1.Pod) bool {
		fits := false
		if err == nil {
			fits, err = s.fitsWithout(n, pods)
		}
		if fits {
			best = &ending{n, pods}
		}
		return fits
	}
	if !helps(pods) {
		return nil, err
	}
	sort.Search(len(pods), func(size int) bool { return helps(pods[:size]) })
	for i := len(best.pods) - 1; i >= 0; i-- {
		helps(slices.Delete(slices.Clone(best.pods), i, i+1))
	}
	return best, err
}

// fitsWithout reports whether the pod fits on the node without these pods. It spends from the
// budget, and returns false if that has ended.
func (s *search) fitsWithout(n *snapshot.Node, pods []*corev1.Pod) (bool, error) {
	if len(pods) == 0 || !s.spend(changedCost+s.each) {
		return false, nil
	}
	if s.trial.filters.LacksWithout(n, pods...) != "" {
		return false, nil // usually, and it is faster than to make the node
	}
	return s.trial.fits(n.Without(func(pod *corev1.Pod) bool { return slices.Contains(pods, pod) }))
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
func (e *ending) running() []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(e.pods), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
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
func compareImportance(a, b *corev1.Pod) int {
	switch ending, other := a.DeletionTimestamp != nil, b.DeletionTimestamp != nil; {
	case ending && !other:
		return -1
	case other && !ending:
		return 1
	}
	return engine.CompareImportance(a, b)
}

func holderOf(pod *corev1.Pod) Holder {
	return Holder{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID),
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
