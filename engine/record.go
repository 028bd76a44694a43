package engine

import (
	"cmp"
	"slices"

	"outboard.dev/outboard/decision"
)

func newRecord(req Request, remembered bool) *decision.Record {
	return &decision.Record{
		Pod:        decision.Pod{Namespace: req.Pod.Namespace, Name: req.Pod.Name, UID: string(req.Pod.UID)},
		Generation: req.View.Generation(),
		Remembered: remembered,
		Asked:      len(req.Nodes),
	}
}

// describe fills in what the record says about policies and rejections.
func (ev *evaluation) describe(result *Result) {
	r := result.Record
	r.Policies = make([]decision.Policy, len(ev.members))
	for i, m := range ev.members {
		r.Policies[i] = decision.Policy{Name: m.Name, Weight: m.Weight, Unconcerned: ev.state[i].unconcerned}
		r.MaxTotal += m.Weight * 100
		if err := ev.state[i].skipped; err != nil {
			r.Policies[i].Skipped = err.Error()
		}
	}
	if len(result.Rejected) == 0 {
		return
	}
	counts := make([]int, len(ev.outcomes))
	for _, rejected := range result.Rejected {
		counts[result.scratch.outcomes[:r.Asked][rejected.Index]]++
	}
	for i, n := range counts {
		if n == 0 {
			continue
		}
		o := &ev.outcomes[i]
		rejection := decision.Rejection{
			Code: o.reason.Code, Text: o.reason.Text, Unit: o.reason.Unit,
			Unresolvable: o.unresolvable, Nodes: n, Nearest: slices.Clone(o.nearest),
		}
		if o.member >= 0 {
			rejection.Policy = ev.members[o.member].Name
		}
		r.Rejections = append(r.Rejections, rejection)
	}
	slices.SortStableFunc(r.Rejections, func(a, b decision.Rejection) int { return cmp.Compare(b.Nodes, a.Nodes) })
}
