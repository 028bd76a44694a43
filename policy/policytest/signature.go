package policytest

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// signatures calls every Cycle with a signature for the same nodes, for all pods and Views, and
// compares the results of those with the same signature.
func (s *suite) signatures() {
	given := &cluster{name: "the given nodes", nodes: s.options.Nodes, pods: s.options.Assigned, signals: s.options.Signals}
	// A signal finds the nodes of its own View by row, and nodes outside by name.
	given.strangers = len(s.options.Signals) > 0
	nodes := given.build(s.options.Extend).nodes
	type said struct {
		where string
		results
	}
	first := map[string]said{}
	for _, c := range s.cases {
		if slices.ContainsFunc(nodes, func(n *snapshot.Node) bool { return holds(n, c.pod.UID) }) {
			continue
		}
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
		if _, together := cycle.(policy.ScoreRows); together {
			got.scores, got.raw = nil, nil
		}
		before, seen := first[signature]
		if !seen {
			first[signature] = said{c.name, got}
			continue
		}
		s.compare("signature", c.name, "has the signature of "+before.where, nodes, before.results, got)
	}
}

// holds reports whether the pod is on the node, or in a ledger of it.
func holds(n *snapshot.Node, uid types.UID) bool {
	return uid != "" && (n.Has(uid) || slices.ContainsFunc(n.Ledgers, func(l *snapshot.Ledger) bool {
		return l.Pod(uid) != nil || slices.ContainsFunc(l.Units, func(u snapshot.LedgerUnit) bool { return u.Amount(uid) > 0 })
	}))
}

// scoreRows compares ScoreRows with Score, for the nodes of the View.
func (s *suite) scoreRows(c *testCase) {
	w, prep := s.fresh(c, s.policy)
	nodes := w.nodes[:w.known]
	cycle, ok := prep.cycle.(policy.ScoreRows)
	if !ok || len(nodes) == 0 || slices.ContainsFunc(nodes, func(n *snapshot.Node) bool { return holds(n, c.pod.UID) }) {
		return
	}
	slices.Reverse(nodes)
	name, want := c.name, prep.evaluate(nodes, forward(len(nodes))).raw
	rows, scores := make([]int32, len(nodes)), make([]int64, len(nodes))
	for i, n := range nodes {
		rows[i] = int32(n.Row())
	}
	if crash := guard(func() { cycle.ScoreRows(rows, scores) }); crash != "" {
		s.fail("survives", name, "ScoreRows %s", crash)
	} else if !slices.Equal(scores, want) {
		s.fail("rows", name, "ScoreRows returns %v for the rows %v, and Score %v", scores, rows, want)
	}
}
