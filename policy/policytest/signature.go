package policytest

import (
	"outboard.dev/outboard/policy"
)

// signatures calls every Cycle with a signature for the same nodes, for all pods and Views, and compares the results of
// those with the same signature.
func (s *suite) signatures() {
	given := &cluster{name: "the given nodes", nodes: s.options.Nodes, pods: s.options.Assigned, signals: s.options.Signals}
	nodes := given.build(s.options.Extend, asPublished).nodes
	type said struct {
		where string
		results
	}
	first := map[string]said{}
	for _, c := range s.cases {
		_, prep := s.fresh(c, s.policy)
		cycle, ok := prep.cycle.(policy.Signature)
		if !ok {
			continue
		}
		var signature string
		if crash := guard(func() { signature = cycle.Signature() }); crash != "" {
			s.fail("survives", c.name, "Signature %s", crash)
			continue
		}
		got := prep.evaluate(nodes, forward(len(nodes)))
		got.scores, got.said = got.raw, nil // a signature does not cover NormalizeScore and Explain
		before, seen := first[signature]
		if !seen {
			first[signature] = said{c.name, got}
			continue
		}
		s.compare("signature", c.name, "has the signature of "+before.where, nodes, before.results, got)
	}
}
