package policytest

import (
	"outboard.dev/outboard/policy"
)

// signatures asks every Cycle with a signature about the same nodes, whatever the pod and the View it was prepared for, and compares
// what those with the same signature say.
func (s *suite) signatures() {
	given := &cluster{name: "the given nodes", nodes: s.options.Nodes, pods: s.options.Assigned, signals: s.options.Signals}
	nodes := given.build(s.options.Extend, asPublished).nodes
	type said struct {
		where string
		answers
	}
	first := map[string]said{}
	for _, c := range s.cases {
		_, asked := s.fresh(c, s.policy)
		cycle, ok := asked.cycle.(policy.Signature)
		if !ok {
			continue
		}
		var signature string
		if crash := guard(func() { signature = cycle.Signature() }); crash != "" {
			s.fail("survives", c.name, "Signature %s", crash)
			continue
		}
		got := asked.judge(nodes, forward(len(nodes)))
		got.scores, got.said = got.raw, nil // a signature says nothing of NormalizeScore and Explain
		before, seen := first[signature]
		if !seen {
			first[signature] = said{c.name, got}
			continue
		}
		s.compare("signature", c.name, "has the signature of "+before.where, nodes, before.answers, got)
	}
}
