package engine

import (
	"slices"

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

// victimSearch searches the pods to evict on one candidate, in addition to its victims.
//
// What always holds between its steps, unless it drops the candidate: the pod fits once the
// candidate's victims and the chosen pods are gone. Each step replaces chosen only by a set that
// kube-scheduler prefers.
type victimSearch struct {
	*preemption
	candidate Candidate
	given     []*corev1.Pod  // its victims, as far as the view shows them on the node
	rest      *snapshot.Node // once these are gone
	// pods are those that can be evicted in addition, in the order of eviction; breaking are the
	// last of them, whose eviction violates a budget; and chosen are those to evict.
	pods, breaking, chosen []*corev1.Pod
	tries                  int // that are left for search
}

// begin finds a set of pods to evict of which none can be spared, or why the candidate is dropped.
func (s *victimSearch) begin() {
	node := s.candidate.Node
	if node == nil {
		s.candidate.Dropped = NodeUnknown.Text
		return
	}
	isGiven := func(pod *corev1.Pod) bool { return slices.Contains(s.candidate.Victims, pod.UID) }
	s.rest = afterEvictions(node, isGiven)
	if s.fits(s.rest) {
		return
	}
	var eligible []*corev1.Pod
	for _, pod := range node.Pods {
		if isGiven(pod) {
			s.given = append(s.given, pod)
		}
	}
	for _, pod := range s.rest.Pods {
		if corev1helpers.PodPriority(pod) < corev1helpers.PodPriority(s.pod) {
			eligible = append(eligible, pod)
		}
	}
	if len(eligible) == 0 || !s.passes(eligible) {
		s.candidate.Dropped = "does not fit even without all pods of lower priority"
		return
	}
	slices.SortStableFunc(eligible, CompareImportance)
	s.breaking = s.violating(eligible)
	harmless := slices.DeleteFunc(eligible, func(pod *corev1.Pod) bool { return slices.Contains(s.breaking, pod) })
	s.pods = slices.Concat(harmless, s.breaking)
	s.tries = s.preemption.tries
	s.spare()
}

// violating returns those of the pods whose eviction violates a budget, if they are evicted in this
// order after the given victims.
func (s *victimSearch) violating(pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(ViolatingBudgets(s.view, slices.Concat(s.given, pods)), func(pod *corev1.Pod) bool {
		return slices.Contains(s.given, pod)
	})
}

// passes reports whether the pod fits after evicting all these pods.
func (s *victimSearch) passes(evicted ...[]*corev1.Pod) bool {
	all := slices.Concat(evicted...)
	return s.fits(afterEvictions(s.rest, func(pod *corev1.Pod) bool { return slices.Contains(all, pod) }))
}

// spare chooses all pods except those without whose eviction the pod fits, too; the last ones are
// spared first. It tries several at a time: usually few pods are evicted, and a pod that holds
// nothing the policies count can always be spared.
func (s *victimSearch) spare() {
	for end := len(s.pods); end > 0; {
		// can is a number of pods that can be spared, and cannot is one that is too large.
		can, cannot := 0, end+1
		for step := 1; can+1 < cannot; step *= 2 {
			if n := min(can+step, (can+cannot)/2); s.passes(s.pods[:end-n], s.chosen) {
				can = n
			} else {
				cannot = n
			}
		}
		if end -= can; end > 0 {
			end--
			s.chosen = append(s.chosen, s.pods[end])
		}
	}
}

// shrink replaces chosen with a smaller set, if there is one.
func (s *victimSearch) shrink() {
	if len(s.chosen) < 2 {
		return
	}
	limit := HighestPriority(s.chosen)
	others := slices.DeleteFunc(slices.Clone(s.pods), func(pod *corev1.Pod) bool {
		return corev1helpers.PodPriority(pod) > limit || slices.Contains(s.breaking, pod) && !slices.Contains(s.chosen, pod)
	})
	for size := 1; size < len(s.chosen) && s.tries > 0 && !s.enough(); size++ {
		if smaller := s.search(others, size, nil); smaller != nil {
			s.chosen = smaller
		}
	}
}

// search returns chosen with size more of the pods, so that the pod fits, or nil if there is no
// such set or no tries are left. It tries sets in an order in which the last pod of the set comes
// as early as possible, then the last but one, and so on. It tries nothing if evicting all pods is
// not enough.
func (s *victimSearch) search(pods []*corev1.Pod, size int, chosen []*corev1.Pod) []*corev1.Pod {
	if size == 0 {
		s.tries--
		if !s.passes(chosen) {
			return nil
		}
		return chosen
	}
	if len(pods) > size {
		s.tries--
		if !s.passes(chosen, pods) {
			return nil
		}
	}
	for last := size - 1; last < len(pods) && s.tries > 0; last++ {
		if found := s.search(pods[:last], size-1, append(slices.Clip(chosen), pods[last])); found != nil {
			return found
		}
	}
	return nil
}

// result returns the candidate with the chosen pods added to its victims, and the record of it.
func (s *victimSearch) result() (Candidate, decision.Preemption) {
	c, noted := s.candidate, decision.Preemption{Node: s.candidate.Name, Given: len(s.candidate.Victims), Dropped: s.candidate.Dropped}
	if len(s.chosen) == 0 {
		return c, noted
	}
	added := slices.SortedStableFunc(slices.Values(s.chosen), CompareImportance)
	slices.Reverse(added)
	c.PDBViolations += int64(len(s.violating(added)))
	c.Victims = slices.Clone(c.Victims)
	for _, pod := range added {
		// kube-scheduler expects the most important victim first. Those added before are no less
		// important.
		at := slices.IndexFunc(c.Victims, func(uid types.UID) bool {
			return slices.ContainsFunc(s.given, func(victim *corev1.Pod) bool {
				return victim.UID == uid && CompareImportance(victim, pod) < 0
			})
		})
		if at < 0 {
			at = len(c.Victims)
		}
		c.Victims = slices.Insert(c.Victims, at, pod.UID)
		noted.Added = append(noted.Added, pod.Namespace+"/"+pod.Name)
	}
	return c, noted
}
