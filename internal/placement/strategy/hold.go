package strategy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/snapshot"
)

// HoldFor says for which pods that wait nodes are held.
//
// Such a pod holds a node on which it fits now; or else those that lack the fewest GPUs for it, so
// that they empty: one, and one more for each moreAfter that it waits. A held node is withheld from
// pods that are not more important, while at most IdleGPUs GPUs are unused on all such nodes.
// Further holds, until softer times as many are unused, only make nodes rank last. So whatever
// keeps a pod from being bound, it never withholds more than that.
//
// The holds depend on the View alone. They cause no deadlock: at most one pod holds a node, and the
// pods are in a total order, in which holds do not concern those before.
type HoldFor struct {
	// GPUs is from how many whole GPUs on a pod holds nodes; 0: none does.
	GPUs int
	// IdleGPUs is how many GPUs may be unused on nodes that are withheld.
	IdleGPUs int
}

const (
	softer    = 5
	moreAfter = 5 * time.Minute
	// patience is what each pod has waited from the beginning: of new pods, the one with the fewest
	// hosts comes first.
	patience = 10 * time.Second
	// maxWaiters is how many of the most important pods hold nodes.
	maxWaiters = 64
	// heldCost makes a held node worse than any other.
	heldCost = 1000 * placement.OneGPU
)

// waiter is a pod that waits, and may hold nodes.
type waiter struct {
	pod      *corev1.Pod
	priority int32
	shape    placement.Shape
	hosts    []bool // by row: the node could serve it if no pods were there
	count    int    // of hosts
	age      time.Duration
}

// compare orders waiters by importance: the longer a pod waits, and the fewer nodes could ever serve
// it, the more important it is among those of its priority.
func (w *waiter) compare(other *waiter) int {
	urgency := func(w *waiter) float64 { return (w.age + patience).Seconds() / float64(w.count) }
	return cmp.Or(cmp.Compare(other.priority, w.priority), cmp.Compare(urgency(other), urgency(w)), snapshot.CompareImportance(w.pod, other.pod))
}

// hold is a node that is held for a pod.
type hold struct {
	waiter   *waiter
	unused   int // how many GPUs of the node could serve the pod now
	withheld bool
}

// holds are those of a View.
type holds struct {
	objects *snapshot.NodeObjects
	known   map[*corev1.Pod]*waiter // all pods that wait, for the next View
	waiters []*waiter               // those that may hold nodes, the most important first
	byNode  map[string]*hold
}

// hold decides which nodes are held.
func (s *clusterState) hold(last *clusterState) {
	if s.ranker.options.HoldFor.GPUs == 0 {
		return
	}
	s.holds = holds{objects: s.view.NodeObjects(), known: map[*corev1.Pod]*waiter{}, byNode: map[string]*hold{}}
	for _, pod := range s.view.Waiting() {
		w := s.waiter(pod, last)
		if s.holds.known[pod] = w; w.count > 0 && len(s.holds.waiters) < maxWaiters {
			s.holds.waiters = append(s.holds.waiters, w)
		}
	}
	slices.SortFunc(s.holds.waiters, (*waiter).compare)
	byShape, unused := map[placement.Shape][]candidate{}, 0
	for _, w := range s.holds.waiters {
		candidates, known := byShape[w.shape]
		if !known {
			candidates = s.candidates(w.shape)
			byShape[w.shape] = candidates
		}
		s.holdFor(w, candidates, &unused)
	}
}

// waiter returns the pod as a waiter, without hosts if it cannot hold nodes. What depends on the pod
// and the Node objects alone is that of the last View.
func (s *clusterState) waiter(pod *corev1.Pod, last *clusterState) *waiter {
	w := &waiter{pod: pod, priority: corev1helpers.PodPriority(pod)}
	if last != nil && last.holds.objects == s.view.NodeObjects() {
		if known := last.holds.known[pod]; known != nil {
			*w = *known
		}
	}
	w.age = max(0, s.view.Time().Sub(pod.CreationTimestamp.Time))
	if w.hosts != nil {
		return w
	}
	w.hosts = []bool{} // known to be none
	possible := false
	if w.shape, possible = s.shapes.Of(snapshot.PodEvent{Pod: pod}); !possible || w.shape.Shares() || w.shape.GPUs < s.ranker.options.HoldFor.GPUs {
		return w
	}
	w.hosts = make([]bool, s.view.Rows())
	filters := kubescheduler.For(pod)
	for n := range s.view.All() {
		empty := s.ranker.states.Of(n).node
		empty.PlainCPU, empty.PlainMemory = 0, 0
		if empty.Hosts(w.shape) && filters.Excludes(n.Object) == "" {
			w.hosts[n.Row()] = true
			w.count++
		}
	}
	return w
}

// candidate is a node that could serve pods of a shape if pods with GPUs ended.
type candidate struct {
	row    int32
	unused int // how many GPUs could serve the pod now
	lacks  int // how many more it needs; 1 if only CPU or memory
}

// candidates returns those for the shape, the best first, in an order that depends on the nodes alone.
func (s *clusterState) candidates(shape placement.Shape) (all []candidate) {
	for n := range s.view.All() {
		node := &s.ranker.states.Of(n).node
		if !node.Hosts(shape) {
			continue
		}
		c := candidate{row: int32(n.Row())}
		for _, g := range node.GPUs {
			if g.Fits(shape) {
				c.unused++
			}
		}
		if !node.Fits(shape) {
			c.lacks = max(1, shape.GPUs-c.unused)
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b candidate) int {
		x, y := s.view.At(int(a.row)), s.view.At(int(b.row))
		return cmp.Or(cmp.Compare(a.lacks, b.lacks), cmp.Compare(s.ranker.states.Of(x).order, s.ranker.states.Of(y).order), strings.Compare(x.Name, y.Name))
	})
	return all
}

// holdFor holds some of the candidates for the pod. unused counts the GPUs that could serve pods on
// held nodes.
func (s *clusterState) holdFor(w *waiter, candidates []candidate, unused *int) {
	most, left := s.ranker.options.HoldFor.IdleGPUs, 1+int(w.age/moreAfter)
	for _, c := range candidates {
		name := s.view.NodeIndex().Name(int(c.row))
		if !w.hosts[c.row] || s.holds.byNode[name] != nil {
			continue
		}
		if *unused+c.unused > softer*most {
			return
		}
		*unused += c.unused
		s.holds.byNode[name] = &hold{waiter: w, unused: c.unused, withheld: *unused <= most}
		if left--; left == 0 || c.lacks == 0 {
			return
		}
	}
}

// heldFrom returns the hold of the node that concerns the ranked pod, or nil.
func (r *Ranking) heldFrom(node string) *hold {
	h := r.state.holds.byNode[node]
	if h == nil || corev1helpers.PodPriority(r.pod) > h.waiter.priority || r.waiter != nil && r.waiter.compare(h.waiter) <= 0 {
		return nil
	}
	return h
}

// Withheld reports whether the node is withheld from the pod, because it is held for another one.
func (r *Ranking) Withheld(node string) bool {
	h := r.heldFrom(node)
	return h != nil && h.withheld
}

// AllWithheld returns the names of the nodes that are withheld from the pod, in order.
func (r *Ranking) AllWithheld() (names []string) {
	for name := range r.state.holds.byNode {
		if r.Withheld(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// explainHolds says which nodes are held for the pod.
func (r *Ranking) explainHolds() (said []string) {
	for name, h := range r.state.holds.byNode {
		if h.waiter.pod.UID == r.pod.UID {
			said = append(said, fmt.Sprintf("hold: %s is held for it; %d of %d GPUs are unused, waiting since %s", name, h.unused, h.waiter.shape.GPUs, h.waiter.age))
		}
	}
	slices.Sort(said)
	return said
}

// ExplainHold says for which other pod the node is held; none if it is not.
func (r *Ranking) ExplainHold(node string) []string {
	h := r.heldFrom(node)
	switch {
	case h == nil:
		return nil
	case h.withheld:
		return []string{fmt.Sprintf("hold: the node is held for pod %s/%s, which waits since %s", h.waiter.pod.Namespace, h.waiter.pod.Name, h.waiter.age)}
	}
	return []string{fmt.Sprintf("hold: the node ranks last, because it is held for pod %s/%s, which waits since %s", h.waiter.pod.Namespace, h.waiter.pod.Name, h.waiter.age)}
}
