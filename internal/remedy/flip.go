package remedy

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// Comparison compares the node of a pod with the others now, as if the pod were not on a node yet.
type Comparison struct {
	Node string `json:"node"`
	// Fits is true if the pod would fit on its node; otherwise all that follows is zero.
	Fits  bool  `json:"fits"`
	Total int64 `json:"total"`
	// Best is a node with the largest total, BestTotal; "" if no node has a larger one than the
	// node of the pod.
	Best      string `json:"best,omitempty"`
	BestTotal int64  `json:"bestTotal,omitempty"`
	// Next is a node with the largest total of the other nodes, NextTotal, if the node of the pod
	// is the best: the margin is the difference. "" if the pod fits on no other node.
	Next      string `json:"next,omitempty"`
	NextTotal int64  `json:"nextTotal,omitempty"`
	// Flips are the smallest changes of one weight with which another node is better than that of
	// the pod, at most one for each policy, the smallest change first. There are none if another
	// node is better anyway.
	Flips []Flip `json:"flips,omitempty"`
}

// Flip is the smallest change of the weight of one policy with which another node is better than
// that of the pod.
type Flip struct {
	Policy string `json:"policy"`
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	// Node is the best node then.
	Node string `json:"node"`
}

// CompareNode compares the node of the pod with the others. It returns nil if the View does not
// have the node. The error is as for [engine.Engine.Score].
func CompareNode(ctx context.Context, c Cluster, pod *corev1.Pod) (*Comparison, error) {
	at := c.View.Node(pod.Spec.NodeName)
	if at == nil {
		return nil, nil
	}
	p := comparing{Cluster: Cluster{Engine: c.Engine, View: without(c.View, pod), Ignored: c.Ignored}, ctx: ctx, pod: unplaced(c.View, pod)}
	s, err := newSearch(ctx, p.Cluster, p.pod)
	if err != nil {
		return nil, err
	}
	p.chosen = -1
	for i, n := range s.selected {
		if b := &s.blocked[i]; b.checks() > 0 {
			continue
		}
		if n.Name == at.Name {
			p.chosen = len(p.nodes)
		}
		p.nodes = append(p.nodes, n)
	}
	result := &Comparison{Node: at.Name, Fits: p.chosen >= 0}
	if !result.Fits {
		return result, nil
	}
	return result, p.compare(result)
}

// without returns the View without the pod and its allocations.
func without(view *snapshot.View, pod *corev1.Pod) *snapshot.View {
	for l := range view.Pools() {
		if l.Pod(pod.UID) != nil {
			view = view.WithPool(l.Without(func(uid types.UID) bool { return uid == pod.UID }))
		}
	}
	n := view.Node(pod.Spec.NodeName)
	return view.WithNodes(n.Without(func(other *corev1.Pod) bool { return other.UID == pod.UID }))
}

// unplaced returns the pod as it was before it was placed. It has no identity, so that it holds no
// allocation, and no evaluation of the pod itself is used or kept.
func unplaced(view *snapshot.View, pod *corev1.Pod) *corev1.Pod {
	before := *pod
	before.UID, before.ResourceVersion, before.Spec.NodeName, before.Annotations = "", "", "", maps.Clone(pod.Annotations)
	for _, l := range slices.AppendSeq(slices.Clone(view.Node(pod.Spec.NodeName).Ledgers), view.Pools()) {
		if allocation := l.Pod(pod.UID); allocation != nil {
			for key := range allocation.Annotations {
				delete(before.Annotations, key)
			}
		}
	}
	return &before
}

// comparing compares the nodes on which the pod fits.
type comparing struct {
	Cluster
	ctx    context.Context
	pod    *corev1.Pod
	nodes  []*snapshot.Node
	chosen int // of nodes
}

// totals returns the totals with these weights, by an Engine of its own, and the scores.
func (p *comparing) totals(members []engine.WeightedPolicy) (*engine.Result, error) {
	e, err := engine.New(engine.Options{Policies: members})
	if err != nil {
		return nil, err
	}
	result := new(engine.Result)
	return result, e.Score(p.ctx, engine.Request{Pod: p.pod, View: p.View, Nodes: p.nodes}, result)
}

// compare compares the node of the pod with the others, and finds the flips.
func (p *comparing) compare(result *Comparison) error {
	members := p.Engine.Policies()
	now, err := p.totals(members)
	if err != nil {
		return err
	}
	best := now.Totals[first(now.Totals)]
	if result.Total = now.Totals[p.chosen]; result.Total < best {
		result.Best, result.BestTotal = p.nodes[first(now.Totals)].Name, best
		return nil
	}
	if next := p.next(now.Totals); next >= 0 {
		result.Next, result.NextTotal = p.nodes[next].Name, now.Totals[next]
	}
	totals := slices.Clone(now.Totals)
	scoring := slices.Clone(members) // a policy with weight 0 has scores, too
	for i := range scoring {
		scoring[i].Weight = max(1, scoring[i].Weight)
	}
	scores, err := p.totals(scoring)
	if err != nil || scores.Scores == nil {
		return err
	}
	for at, scorer := range scores.Scores.Policies {
		member := slices.IndexFunc(members, func(m engine.WeightedPolicy) bool { return m.Name == scorer.Name })
		weight, ok := p.flipped(members[member].Weight, totals, scores.Scores.Parts[at*len(p.nodes):][:len(p.nodes)])
		if !ok {
			continue
		}
		changed := slices.Clone(members)
		changed[member].Weight = weight
		then, err := p.totals(changed)
		if err != nil {
			return err
		}
		if i := first(then.Totals); then.Totals[i] > then.Totals[p.chosen] {
			result.Flips = append(result.Flips, Flip{scorer.Name, members[member].Weight, weight, p.nodes[i].Name})
		}
	}
	slices.SortStableFunc(result.Flips, func(a, b Flip) int { return cmp.Compare(a.change(), b.change()) })
	return nil
}

func (f *Flip) change() int64 { return max(f.To-f.From, f.From-f.To) }

// first returns the index of the first of the largest totals.
func first(totals []int64) int { return slices.Index(totals, slices.Max(totals)) }

// next returns the index of the first of the largest totals other than that of the chosen node, or
// -1.
func (p *comparing) next(totals []int64) int {
	best := -1
	for i, total := range totals {
		if i != p.chosen && (best < 0 || total > totals[best]) {
			best = i
		}
	}
	return best
}

// flipped returns the weight nearest to the present one with which a node has a larger total than
// the chosen one. A total is a linear function of the weight.
func (p *comparing) flipped(weight int64, totals []int64, scores []uint8) (to int64, ok bool) {
	for i := range totals {
		behind, steps := totals[p.chosen]-totals[i], int64(scores[i])-int64(scores[p.chosen])
		if steps == 0 {
			continue
		}
		next := weight + behind/steps + 1 // rounded towards 0, and then away from it
		if steps < 0 {
			next = weight + behind/steps - 1
		}
		if next >= 0 && next <= engine.MaxWeight && (!ok || max(next-weight, weight-next) < max(to-weight, weight-to)) {
			to, ok = next, true
		}
	}
	return to, ok
}
