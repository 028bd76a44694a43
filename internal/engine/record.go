package engine

import (
	"cmp"
	"slices"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

func (c *Cycle) newRecord(nodes int) *decision.Record {
	r := &decision.Record{Pod: decision.PodOf(c.pod), Generation: c.view.Generation(), Nodes: nodes, Bypassed: c.engine.bypass}
	if c.engine.readsDevices {
		r.UnknownClaims = c.view.UnknownClaims(c.pod)
	}
	return r
}

// recordPolicies returns the part of each policy in the decision.
func (c *Cycle) recordPolicies() []decision.Policy {
	policies := make([]decision.Policy, 0, len(c.policies)-1)
	for i, m := range c.engine.members[1:] {
		p := &c.policies[1+i]
		noted := decision.Policy{Name: m.Name, Weight: m.Weight, Skipped: p.skipped, Duration: p.took}
		if failure := p.ignored.Load(); failure != nil {
			noted.IgnoredError = failure.Error()
		}
		policies = append(policies, noted)
	}
	return policies
}

// fits is the outcome of a node that is not rejected.
const fits int32 = -1

// tally counts the nodes by verdict.
type tally []outcome

// outcome is one verdict of one member, with the nodes that have it.
type outcome struct {
	member       int
	reason       *policy.Reason
	unresolvable bool

	nodes   int
	nearest []near // nearest first, at most decision.NearestMisses
}

// numbers are those of a Verdict.
type numbers struct{ have, want int64 }

// distance returns how far a node is from fitting.
func (n numbers) distance() uint64 {
	if n.want >= n.have {
		return uint64(n.want) - uint64(n.have)
	}
	return uint64(n.have) - uint64(n.want)
}

type near struct {
	index int32 // of the node in the request
	numbers
}

// find returns the index of the outcome for a verdict.
func (t *tally) find(member int, reason *policy.Reason, unresolvable bool) int32 {
	for i := range *t {
		if o := &(*t)[i]; o.reason == reason && o.member == member && o.unresolvable == unresolvable {
			return int32(i)
		}
	}
	*t = append(*t, outcome{member: member, reason: reason, unresolvable: unresolvable})
	return int32(len(*t) - 1)
}

// count counts the node with this index, and keeps it in nearest if it is close to fitting. Of
// equally close nodes, the earlier one in the request is nearer.
func (o *outcome) count(index int32, have numbers) {
	o.nodes++
	last := len(o.nearest) - 1
	if d := have.distance(); last < decision.NearestMisses-1 || d < o.nearest[last].distance() {
		at := len(o.nearest)
		for at > 0 && d < o.nearest[at-1].distance() {
			at--
		}
		o.nearest = slices.Insert(o.nearest, at, near{index, have})
		o.nearest = o.nearest[:min(len(o.nearest), decision.NearestMisses)]
	}
}

// rejections returns the outcomes that have nodes, the most frequent first, and then in the order
// of policies and codes.
func (t tally) rejections(members []WeightedPolicy, nodes []*snapshot.Node) []decision.Rejection {
	t = slices.DeleteFunc(t, func(o outcome) bool { return o.nodes == 0 })
	slices.SortStableFunc(t, func(a, b outcome) int {
		c := cmp.Or(cmp.Compare(b.nodes, a.nodes), cmp.Compare(a.member, b.member), cmp.Compare(a.reason.Code, b.reason.Code))
		switch {
		case c != 0 || a.unresolvable == b.unresolvable:
			return c
		case a.unresolvable:
			return 1
		}
		return -1
	})
	var rejections []decision.Rejection
	for _, o := range t {
		r := decision.Rejection{
			Code: o.reason.Code, Text: o.reason.Text, Unit: o.reason.Unit,
			Unresolvable: o.unresolvable, Nodes: o.nodes,
		}
		if o.member != outboard {
			r.Policy = members[o.member].Name
		}
		for _, miss := range o.nearest {
			r.Nearest = append(r.Nearest, decision.Miss{Node: nodes[miss.index].Name, Have: miss.have, Want: miss.want})
		}
		rejections = append(rejections, r)
	}
	return rejections
}
