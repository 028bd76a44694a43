package engine

import (
	"cmp"
	"slices"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// The outcomes that every evaluation starts with.
const (
	fits    int32 = 0
	unknown int32 = 1 // the node is not known
)

// engineItself is the member of verdicts that are not those of a policy.
const engineItself = -1

// itself is the name of engineItself among the policies.
const itself = "Outboard"

// outcome is one verdict, with the nodes that have it.
type outcome struct {
	member       int // or engineItself
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
	index    int32 // of the node in the request
	distance uint64
	numbers
}

// resetOutcomes removes all outcomes but those that every evaluation starts with.
func (ev *evaluation) resetOutcomes() {
	ev.outcomes = append(ev.outcomes[:0], outcome{}, outcome{member: engineItself, reason: NodeUnknown})
}

// outcome returns the index of the outcome for a verdict.
func (ev *evaluation) outcome(member int, reason *policy.Reason, unresolvable bool) int32 {
	for i := unknown + 1; int(i) < len(ev.outcomes); i++ {
		if o := &ev.outcomes[i]; o.reason == reason && o.member == member && o.unresolvable == unresolvable {
			return i
		}
	}
	ev.outcomes = append(ev.outcomes, outcome{member: member, reason: reason, unresolvable: unresolvable})
	return int32(len(ev.outcomes) - 1)
}

// count counts the node with this index, and keeps it in nearest if it is close to fitting. Of
// equally close nodes, the earlier one in the request is nearer.
func (o *outcome) count(index int32, have numbers) {
	o.nodes++
	last := len(o.nearest) - 1
	if d := have.distance(); last < decision.NearestMisses-1 || d < o.nearest[last].distance {
		o.insert(near{index, d, have})
	}
}

func (o *outcome) insert(n near) {
	at := len(o.nearest)
	for at > 0 && n.distance < o.nearest[at-1].distance {
		at--
	}
	o.nearest = slices.Insert(o.nearest, at, n)
	o.nearest = o.nearest[:min(len(o.nearest), decision.NearestMisses)]
}

// rejections returns the outcomes that have nodes, the most frequent first, and then in the order
// of policies and codes.
func (ev *evaluation) rejections(nodes []*snapshot.Node) []decision.Rejection {
	var met []*outcome
	for i := range ev.outcomes {
		if ev.outcomes[i].nodes > 0 {
			met = append(met, &ev.outcomes[i])
		}
	}
	slices.SortStableFunc(met, func(a, b *outcome) int {
		c := cmp.Or(cmp.Compare(b.nodes, a.nodes), cmp.Compare(a.member, b.member), cmp.Compare(a.reason.Code, b.reason.Code))
		if c == 0 && a.unresolvable != b.unresolvable {
			if c = 1; b.unresolvable {
				c = -1
			}
		}
		return c
	})
	var rejections []decision.Rejection
	for _, o := range met {
		r := decision.Rejection{
			Code: o.reason.Code, Text: o.reason.Text, Unit: o.reason.Unit,
			Unresolvable: o.unresolvable, Nodes: o.nodes,
		}
		if o.member >= 0 {
			r.Policy = ev.members[o.member].Name
		}
		for _, miss := range o.nearest {
			r.Nearest = append(r.Nearest, decision.Miss{Node: nodes[miss.index].Name, Have: miss.have, Want: miss.want})
		}
		rejections = append(rejections, r)
	}
	return rejections
}
