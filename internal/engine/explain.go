package engine

import (
	"context"
	"slices"

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
	// HoldsClaim is true if the pod holds a claim on the node from an earlier attempt to bind it;
	// then Total is MaxTotal.
	HoldsClaim bool            `json:"holdsClaim,omitempty"`
	Policies   []PolicyOpinion `json:"policies"`
	// Gets is what the pod would get on the node, if it fits there and needs a claim: see [Engine.Holdings].
	Gets []Holding `json:"gets,omitempty"`
	// Nominated are the names (namespace/name) of the pods that are nominated to the node and count there.
	Nominated []string `json:"nominated,omitempty"`
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
// [Engine.Filter]; with an error there are no explanations.
func (e *Engine) Explain(ctx context.Context, req Request) (Explanations, error) {
	var result Result
	var known, plain []*snapshot.Node
	var indices []int32
	nominations := e.nominations(req.View)
	for _, n := range req.Nodes {
		if n != nil {
			indices = append(indices, int32(len(known)))
			known, plain = append(known, nominations.counting(n, req.Pod, false)), append(plain, n)
		}
	}
	req.Nodes = known
	var all Explanations
	err := e.run(ctx, req, &result, func(ev *evaluation) error {
		totals, err := ev.totals(ctx, known, indices, &result)
		if err != nil {
			return err
		}
		all = Explanations{MaxTotal: ev.maxTotal, Nodes: make([]Explanation, len(known))}
		for _, x := range ev.explainers {
			notes, err := ev.explained(x, nil)
			if err != nil {
				return err
			}
			if len(notes) > 0 {
				all.Pod = append(all.Pod, PolicyNotes{ev.members[x.member].Name, notes})
			}
		}
		for j, n := range known {
			if j%checkInterval == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if all.Nodes[j], err = ev.explain(n, totals[j]); err != nil {
				return err
			}
			all.Nodes[j].Nominated = added(n, plain[j])
			all.Nodes[j].Fits = all.Nodes[j].Fits && (n == plain[j] || ev.passes(plain[j]))
			for at, s := range ev.scorers {
				o := &all.Nodes[j].Policies[s.member]
				o.Scored, o.Score = true, result.scratch.scores[at][j]
			}
		}
		return nil
	})
	if err != nil {
		return Explanations{}, err
	}
	return all, nil
}

// explain calls every filter for the node.
func (ev *evaluation) explain(n *snapshot.Node, total int64) (Explanation, error) {
	x := Explanation{Node: n.Name, Fits: true, Total: total, HoldsClaim: ev.holdsClaim(n), Policies: make([]PolicyOpinion, len(ev.members))}
	for i, m := range ev.members {
		x.Policies[i] = PolicyOpinion{Policy: m.Name, Weight: m.Weight}
	}
	if v := ev.tooLarge; !v.Fits() {
		x.Fits = false
		x.Policies = append(x.Policies, PolicyOpinion{Policy: itself}.with(v))
		return x, nil
	}
	for i, f := range ev.filters {
		v, _, err := ev.rejection(ev.filters[i:i+1], n, false)
		if err != nil {
			return x, err
		}
		if v.Fits() || x.Policies[f.member].Code != "" {
			continue
		}
		x.Fits = false
		x.Policies[f.member] = x.Policies[f.member].with(v)
	}
	for _, ref := range ev.explainers {
		notes, err := ev.explained(ref, n)
		if err != nil {
			return x, err
		}
		x.Policies[ref.member].Notes = append(x.Policies[ref.member].Notes, notes...)
	}
	return x, nil
}

// with returns the opinion with the verdict, which rejects the node.
func (o PolicyOpinion) with(v policy.Verdict) PolicyOpinion {
	o.Code, o.Text, o.Unit = v.Reason.Code, v.Reason.Text, v.Reason.Unit
	o.Have, o.Want, o.Unresolvable = v.Have, v.Want, v.Unresolvable
	return o
}

// explained returns the notes of a policy about the node, or about the pod as a whole if n is nil.
func (ev *evaluation) explained(x explainerRef, n *snapshot.Node) (notes []string, err error) {
	err = guard(ev.members[x.member].Name, func() error { notes = x.explainer.Explain(n); return nil })
	return notes, err
}
