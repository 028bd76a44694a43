package whatif

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/snapshot"
)

// Change is one change of what kube-scheduler excludes nodes for.
type Change struct {
	Type ChangeType `json:"type"`
	// Of is the taint (key=value:effect) or the selector (key=value); "" for Uncordon.
	Of string `json:"of,omitempty"`
}

// ChangeType is a type of Change.
type ChangeType string

const (
	// Tolerate means that the pod tolerates a taint.
	Tolerate ChangeType = "Tolerate"
	// DropSelector means that the nodeSelector of the pod does not have a label.
	DropSelector ChangeType = "DropSelector"
	// Uncordon means that a node is not cordoned.
	Uncordon ChangeType = "Uncordon"
)

// alternative is a Change with the nodes that it may let the pod run on.
type alternative struct {
	Change
	change func(*corev1.PodSpec) // nil for Uncordon
	nodes  []*snapshot.Node
}

// excluded returns the change that lets the pod run on the most nodes that kube-scheduler excludes
// for that alone.
func (s *search) excluded() ([]Remedy, error) {
	var best *Remedy
	for _, a := range s.alternatives() {
		count, first, err := s.count(a)
		if err != nil {
			return nil, err
		}
		if count > 0 && (best == nil || count > best.Nodes) {
			best = &Remedy{Kind: Nodes, Node: first, Nodes: count, Change: &a.Change}
		}
	}
	if best == nil {
		return nil, nil
	}
	return []Remedy{*best}, nil
}

// count returns on how many nodes the pod fits with the change, and the first of them, until the
// budget ends.
func (s *search) count(a alternative) (count int, first string, err error) {
	t, cost := s.trial, changedCost+s.each
	if a.change != nil {
		if cost = s.each; !s.spend(s.prepare) {
			return 0, "", nil
		}
		pod := s.pod.DeepCopy()
		a.change(&pod.Spec)
		if t, err = s.try(s.Engine, pod, s.View); err != nil {
			return 0, "", err
		}
	}
	for _, n := range a.nodes {
		if !s.spend(cost) {
			return count, first, nil
		}
		if a.change == nil {
			n = uncordoned(n)
		}
		if t.filters.Excludes(n.Object) != "" {
			continue
		}
		fits, err := t.fits(n)
		if err != nil {
			return 0, "", err
		}
		if fits {
			first = cmp.Or(first, n.Name)
			count++
		}
	}
	return count, first, nil
}

// alternatives returns the changes that are possible.
func (s *search) alternatives() []alternative {
	all := s.tolerations()
	for _, key := range slices.Sorted(maps.Keys(s.pod.Spec.NodeSelector)) {
		drop := func(spec *corev1.PodSpec) { delete(spec.NodeSelector, key) }
		all = append(all, alternative{Change: Change{DropSelector, key + "=" + s.pod.Spec.NodeSelector[key]}, change: drop, nodes: s.others})
	}
	if cordoned := slices.DeleteFunc(slices.Clone(s.others), func(n *snapshot.Node) bool { return !n.Object.Spec.Unschedulable }); len(cordoned) > 0 {
		all = append(all, alternative{Change: Change{Type: Uncordon}, nodes: cordoned})
	}
	return all
}

// tolerations returns a change for each taint of the excluded nodes that the pod does not tolerate,
// except that of cordoned nodes.
func (s *search) tolerations() []alternative {
	byTaint := map[corev1.Taint][]*snapshot.Node{}
	for _, n := range s.others {
		for _, taint := range n.Object.Spec.Taints {
			if taint.TimeAdded = nil; taint.Key != corev1.TaintNodeUnschedulable && taint.Effect != corev1.TaintEffectPreferNoSchedule {
				byTaint[taint] = append(byTaint[taint], n)
			}
		}
	}
	var all []alternative
	for _, taint := range slices.SortedFunc(maps.Keys(byTaint), func(a, b corev1.Taint) int { return cmp.Compare(a.ToString(), b.ToString()) }) {
		if !s.spend(s.each) {
			break
		}
		tainted := corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint}}}
		if kubescheduler.For(&corev1.Pod{Spec: corev1.PodSpec{Tolerations: s.pod.Spec.Tolerations}}).Excludes(&tainted) == "" {
			continue
		}
		tolerate := func(spec *corev1.PodSpec) {
			spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpEqual, Value: taint.Value, Effect: taint.Effect})
		}
		all = append(all, alternative{Change: Change{Tolerate, taint.ToString()}, change: tolerate, nodes: byTaint[taint]})
	}
	return all
}

// uncordoned returns the node as after kubectl uncordon.
func uncordoned(n *snapshot.Node) *snapshot.Node {
	object := *n.Object
	object.Spec.Unschedulable = false
	object.Spec.Taints = slices.DeleteFunc(slices.Clone(object.Spec.Taints), func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
	return n.WithObject(&object)
}
