package engine

import "outboard.dev/outboard/internal/decision"

func (e *Engine) newRecord(req Request) *decision.Record {
	r := &decision.Record{
		Pod:        decision.PodOf(req.Pod),
		Generation: req.View.Generation(),
		Nodes:      len(req.Nodes),
	}
	if e.readsDevices {
		r.UnknownClaims = req.View.UnknownClaims(req.Pod)
	}
	return r
}

// policies returns the part of each policy in the decision.
func (ev *evaluation) policies() []decision.Policy {
	policies := make([]decision.Policy, len(ev.members))
	for i, m := range ev.members {
		policies[i] = decision.Policy{Name: m.Name, Weight: m.Weight, Unconcerned: ev.state[i].unconcerned, Duration: ev.state[i].took}
		if err := ev.state[i].ignored; err != nil {
			policies[i].IgnoredError = err.Error()
		}
	}
	return policies
}
