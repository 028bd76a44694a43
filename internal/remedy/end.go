package remedy

import (
	"cmp"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// nearest is how many of the nodes that come closest to fitting are compared with each other if the
// pods that end are equally many.
const nearest = 20

// ending is a set of pods of one node.
type ending struct {
	node *snapshot.Node
	pods []*corev1.Pod
}

// ends returns the fewest pods of one node without which the pod fits there. First it takes all
// pods of a node and spares one after the other, on the nodes that come closest to fitting; then it
// tries all smaller sets on all nodes.
func (s *search) ends() ([]Remedy, error) {
	var best *ending
	compared, complete := 0, true
	nodes := s.byDistance()
	for _, n := range nodes {
		if compared == nearest {
			break
		}
		fits, enough, err := s.fitsWithout(n, mayEnd(n))
		if err != nil {
			return nil, err
		}
		if complete = complete && enough; !complete {
			break
		}
		if !fits {
			continue
		}
		compared++
		set, err := s.spare(n)
		if err != nil {
			return nil, err
		}
		if best == nil || set.compare(best) < 0 {
			best = set
		}
	}
	if best == nil {
		return nil, nil
	}
	for size := 1; size < len(best.pods) && complete; size++ {
		smaller, all, err := s.ofSize(nodes, size)
		if err != nil {
			return nil, err
		}
		if complete = all; smaller != nil {
			best = smaller
		}
	}
	preemption, err := s.preemption(best)
	if err != nil {
		return nil, err
	}
	remedy := Remedy{Kind: End, Node: best.node.Name, Preemption: preemption, Smallest: complete || len(best.pods) == 1}
	for _, pod := range best.pods {
		remedy.End = append(remedy.End, holderOf(pod, best.node.Name))
	}
	return []Remedy{remedy}, nil
}

// byDistance returns the nodes that have pods that may end, those first that fewer checks reject,
// and of these those that come closest to fitting.
func (s *search) byDistance() []*snapshot.Node {
	var order []int
	for i, n := range s.selected {
		if len(mayEnd(n)) > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return s.blocked[a].compare(&s.blocked[b]) })
	nodes := make([]*snapshot.Node, 0, len(order))
	for _, i := range order {
		nodes = append(nodes, s.selected[i])
	}
	return nodes
}

// mayEnd returns the pods of the node whose end makes room. Those of a DaemonSet come back at once,
// and static pods do not end.
func mayEnd(n *snapshot.Node) []*corev1.Pod {
	stays := func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" || o.Kind == "Node" })
	}
	if !slices.ContainsFunc(n.Pods, stays) {
		return n.Pods
	}
	return slices.DeleteFunc(slices.Clone(n.Pods), stays)
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
	if o.Want >= o.Have {
		return uint64(o.Want) - uint64(o.Have)
	}
	return uint64(o.Have) - uint64(o.Want)
}

// fitsWithout reports whether the pod fits on the node without these pods. enough is false if the
// budget has ended.
func (s *search) fitsWithout(n *snapshot.Node, pods []*corev1.Pod) (fits, enough bool, err error) {
	if !s.spend(changedCost + s.each) {
		return false, false, nil
	}
	fits, err = s.trial.fitsWithout(n, pods)
	return fits, true, err
}

// spare returns pods of the node of which none can be spared. The pod fits without all that may
// end. The most important pods are spared first.
func (s *search) spare(n *snapshot.Node) (*ending, error) {
	set := &ending{node: n, pods: slices.SortedStableFunc(slices.Values(mayEnd(n)), compareImportance)}
	for i := len(set.pods) - 1; i >= 0; i-- {
		rest := slices.Delete(slices.Clone(set.pods), i, i+1)
		fits, enough, err := s.fitsWithout(n, rest)
		if err != nil {
			return nil, err
		}
		if !enough {
			break
		}
		if fits {
			set.pods = rest
		}
	}
	return set, nil
}

// ofSize returns the best set with this many pods of one of the nodes, or nil. complete is false if
// the budget ended before, and then it returns the best one so far.
func (s *search) ofSize(nodes []*snapshot.Node, size int) (best *ending, complete bool, err error) {
	compared := 0
	for _, n := range nodes {
		if compared == nearest && best != nil {
			break
		}
		compared++
		enough := true
		for pods := range subsets(mayEnd(n), size) {
			var fits bool
			if fits, enough, err = s.fitsWithout(n, pods); err != nil || !enough {
				return best, false, err
			}
			if set := (&ending{n, pods}); fits && (best == nil || set.compare(best) < 0) {
				best = &ending{n, slices.Clone(pods)}
			}
		}
	}
	return best, true, nil
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

// compare is less than 0 if it is better that the first set ends: it has fewer pods, more of them
// are ending already, or they have lower priorities, or started later.
func (e *ending) compare(other *ending) int {
	return cmp.Or(
		cmp.Compare(len(e.pods), len(other.pods)), cmp.Compare(len(e.running()), len(other.running())),
		cmp.Compare(engine.HighestPriority(e.pods), engine.HighestPriority(other.pods)), other.oldest().Compare(e.oldest()),
	)
}

// running are the pods that are not ending already.
func (e *ending) running() []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(e.pods), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

func (e *ending) oldest() time.Time {
	var first time.Time
	for i, pod := range e.pods {
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

func holderOf(pod *corev1.Pod, node string) Holder {
	return Holder{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: node,
		Priority: corev1helpers.PodPriority(pod), TerminatingUntil: pod.DeletionTimestamp,
	}
}

// preemption says whether preemption can evict the pods.
func (s *search) preemption(set *ending) (Preemption, error) {
	priority := corev1helpers.PodPriority(s.pod)
	running := set.running()
	b := s.blocked[slices.Index(s.selected, set.node)]
	switch {
	case len(running) == 0:
		return Unnecessary, nil
	case s.pod.Spec.PreemptionPolicy != nil && *s.pod.Spec.PreemptionPolicy == corev1.PreemptNever:
		return NeverPreempts, nil
	case engine.HighestPriority(running) >= priority:
		return PriorityNotLower, nil
	case len(b.rejecting) > 0 && b.rejecting[0].Unresolvable:
		return NotConsidered, nil
	}
	candidate := engine.Candidate{Node: set.node, Name: set.node.Name}
	for _, pod := range slices.Backward(slices.SortedStableFunc(slices.Values(running), compareImportance)) {
		candidate.Victims = append(candidate.Victims, pod.UID)
	}
	var result engine.Result
	kept, err := s.Engine.Preempt(s.ctx, engine.PreemptRequest{
		Request: engine.Request{Pod: s.pod, View: s.View}, Candidates: []engine.Candidate{candidate},
	}, &result)
	switch {
	case err != nil:
		return "", err
	case len(kept) == 0 || !sameVictims(kept[0].Victims, candidate.Victims):
		return NotConsidered, nil
	case b.lacks == "":
		return LacksNothing, nil
	case len(engine.ViolatingBudgets(s.View, running)) > 0:
		return ViolatesBudget, nil
	}
	return Possible, nil
}

func sameVictims(a, b []types.UID) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
