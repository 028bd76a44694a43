package engine

import (
	"context"

	"outboard.dev/outboard/snapshot"
)

// Explanation is what every policy says about one node, also after one of them
// has rejected it.
type Explanation struct {
	Node     string          `json:"node"`
	Fits     bool            `json:"fits"`
	Total    int64           `json:"total"`
	Policies []PolicyOpinion `json:"policies"`
}

// PolicyOpinion is what one policy says about one node.
type PolicyOpinion struct {
	Policy string `json:"policy"`
	// Code, Text, Unit, Have, Want and Unresolvable are the policy's Verdict;
	// Code is "" if the node fits or the policy does not filter.
	Code         string `json:"code,omitempty"`
	Text         string `json:"text,omitempty"`
	Unit         string `json:"unit,omitempty"`
	Have         int64  `json:"have,omitempty"`
	Want         int64  `json:"want,omitempty"`
	Unresolvable bool   `json:"unresolvable,omitempty"`
	// Scored says whether the policy scores; Score is then its score in 0..100
	// among all nodes asked, and Weight its weight.
	Scored bool  `json:"scored"`
	Score  int64 `json:"score"`
	Weight int64 `json:"weight"`
}

// Explain asks every policy about every node. It is for people: it allocates,
// and remembers nothing. Unknown nodes (nil) are left out.
func (e *Engine) Explain(ctx context.Context, req Request) ([]Explanation, error) {
	known := make([]*snapshot.Node, 0, len(req.Nodes))
	for _, n := range req.Nodes {
		if n != nil {
			known = append(known, n)
		}
	}
	var explanations []Explanation
	var result Result
	err := e.run(ctx, Request{Pod: req.Pod, View: req.View, Nodes: known}, &result, func(ev *evaluation) error {
		explanations = make([]Explanation, len(known))
		totals, err := ev.totals(ctx, known, result.scratch.every(len(known)), &result)
		if err != nil {
			return err
		}
		for j, n := range known {
			opinions := make([]PolicyOpinion, len(ev.members))
			for i, m := range ev.members {
				opinions[i] = PolicyOpinion{Policy: m.Name, Weight: m.Weight}
			}
			explanations[j] = Explanation{Node: n.Name, Fits: true, Total: totals[j], Policies: opinions}
			for _, f := range ev.filters {
				ev.running = f.member
				v := f.filter.Filter(n)
				if v.Fits() {
					continue
				}
				explanations[j].Fits = false
				o := &opinions[f.member]
				o.Code, o.Text, o.Unit = v.Reason.Code, v.Reason.Text, v.Reason.Unit
				o.Have, o.Want, o.Unresolvable = v.Have, v.Want, v.Unresolvable
			}
			ev.running = -1
			for at, s := range ev.scorers {
				opinions[s.member].Scored, opinions[s.member].Score = true, result.scratch.scores[at][j]
			}
		}
		return nil
	})
	return explanations, err
}
