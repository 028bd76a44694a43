package engine

import (
	"context"
	"slices"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Explanations are the results of all policies, in words.
type Explanations struct {
	// Pod holds the policies' notes about the pod as a whole.
	Pod []PolicyNotes
	// Nodes are in the order of the request.
	Nodes []Explanation
	// MaxTotal is the largest total that a node can have for the pod.
	MaxTotal int64
}

// PolicyNotes are the notes of one policy.
type PolicyNotes struct {
	Policy string   `json:"policy"`
	Notes  []string `json:"notes"`
}

// Explanation holds the results of every policy for one node, including policies after the first
// one that rejects it.
type Explanation struct {
	Node  string `json:"node"`
	Fits  bool   `json:"fits"`
	Total int64  `json:"total"`
	// HoldsAllocation is true if the pod holds an allocation on the node from an earlier attempt to
	// bind it; then Total is MaxTotal.
	HoldsAllocation bool            `json:"holdsAllocation,omitempty"`
	Policies        []PolicyOpinion `json:"policies"`
	// Gets is what the pod would get on the node, if it fits there and needs an allocation: see
	// [Engine.Holdings].
	Gets []decision.Allocation `json:"gets,omitempty"`
	// Nominated are the names (namespace/name) of the pods that are nominated to the node and count
	// there.
	Nominated []string `json:"nominated,omitempty"`
}

// PolicyOpinion is the result of one policy for one node.
type PolicyOpinion struct {
	Policy string `json:"policy"`
	// Code, Text, Unit, Have, Want and Unresolvable are those of the policy's Verdict. Code is ""
	// if the node fits or the policy does not filter.
	Code         string `json:"code,omitempty"`
	Text         string `json:"text,omitempty"`
	Unit         string `json:"unit,omitempty"`
	Have         int64  `json:"have,omitempty"`
	Want         int64  `json:"want,omitempty"`
	Unresolvable bool   `json:"unresolvable,omitempty"`
	// Scored is true if the policy scores the node. Score is then its score in 0..100 among all
	// nodes of the request, and Weight is its weight.
	Scored bool  `json:"scored"`
	Score  int64 `json:"score"`
	Weight int64 `json:"weight"`
	// Notes explain the result in words.
	Notes []string `json:"notes,omitempty"`
}

// Explain calls every policy for every node, in the order of the request. It is for people: it
// allocates, and caches no verdicts. It omits unknown nodes (nil). The error is as for
// [Cycle.Filter]; with an error there are no explanations.
func (e *Engine) Explain(ctx context.Context, req Request) (all Explanations, err error) {
	c, _ := e.Begin(ctx, req.Pod, req.View) // decide returns the error
	known := slices.DeleteFunc(slices.Clone(req.Nodes), func(n *snapshot.Node) bool { return n == nil })
	var result Result
	err = c.decide(ctx, known, nil, &result, func() error {
		all.Nodes = make([]Explanation, len(known))
		indices := make([]int32, len(known))
		for j, n := range known {
			indices[j] = int32(j)
			all.Nodes[j] = Explanation{Node: n.Name, Fits: true, HoldsAllocation: c.holdsAllocation(c.nodes[j]), Nominated: added(c.nodes[j], n)}
			for _, m := range e.members[1:] {
				all.Nodes[j].Policies = append(all.Nodes[j].Policies, PolicyOpinion{Policy: m.Name, Weight: m.Weight})
			}
		}
		for m := range c.policies {
			if err := c.explainColumn(ctx, m, &all); err != nil {
				return err
			}
		}
		totals, err := c.sum(ctx, indices, &result)
		if err != nil {
			return err
		}
		all.MaxTotal = c.maxTotal()
		for j := range all.Nodes {
			all.Nodes[j].Total = totals[j]
			for _, m := range c.scoring {
				o := &all.Nodes[j].Policies[m-1]
				o.Scored, o.Score = true, result.scratch.scores[m][j]
			}
		}
		return nil
	})
	if err != nil {
		return Explanations{}, err
	}
	return all, nil
}

// explainColumn adds what one policy says about the pod and all nodes.
func (c *Cycle) explainColumn(ctx context.Context, member int, all *Explanations) error {
	p, m := &c.policies[member], &c.engine.members[member]
	var pod []string
	verdicts, notes := make([]policy.Verdict, len(c.nodes)), make([][]string, len(c.nodes))
	complete, err := c.column(ctx, member, func() error {
		if p.explainer != nil {
			pod = p.explainer.Explain(nil)
		}
		for j, n := range c.nodes {
			if j%checkInterval == 0 && ctx.Err() != nil {
				return nil
			}
			if p.filter != nil {
				verdicts[j] = c.filterBoth(p, int32(j))
			}
			if p.explainer != nil {
				notes[j] = p.explainer.Explain(n)
			}
		}
		return nil
	})
	if err != nil || !complete || !p.applies() {
		return err
	}
	if len(pod) > 0 {
		all.Pod = append(all.Pod, PolicyNotes{m.Name, pod})
	}
	for j, v := range verdicts {
		x := &all.Nodes[j]
		if member == outboard {
			x.Policies = append(x.Policies, PolicyOpinion{Policy: m.Name})
		}
		o := &x.Policies[(member+len(c.policies)-1)%len(c.policies)] // outboard is the last
		o.Notes = notes[j]
		if !v.Fits() {
			x.Fits, *o = false, o.with(v)
		}
	}
	return nil
}

// Rejecting returns the opinions of all policies that reject the node, in the order of the profile.
// It counts no nominated pods. The error is a *PolicyError.
func (c *Cycle) Rejecting(n *snapshot.Node) (all []PolicyOpinion, err error) {
	for i, m := range c.engine.members {
		v, err := c.columnOfOne(i, n)
		if err != nil {
			return nil, err
		}
		if !v.Fits() {
			all = append(all, PolicyOpinion{Policy: m.Name, Weight: m.Weight}.with(v))
		}
	}
	return all, nil
}

// with returns the opinion with the verdict, which rejects the node.
func (o PolicyOpinion) with(v policy.Verdict) PolicyOpinion {
	o.Code, o.Text, o.Unit = v.Reason.Code, v.Reason.Text, v.Reason.Unit
	o.Have, o.Want, o.Unresolvable = v.Have, v.Want, v.Unresolvable
	return o
}

// added returns the names of the pods that n has and plain does not have.
func added(n, plain *snapshot.Node) []string {
	var names []string
	for _, pod := range n.Pods {
		if !slices.Contains(plain.Pods, pod) {
			names = append(names, pod.Namespace+"/"+pod.Name)
		}
	}
	return names
}
