package replicas

import (
	"cmp"
	"slices"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/explain"
)

// Decisions returns the latest decisions of all replicas, latest first, at most limit. Each has the
// name of its replica.
func Decisions(responses []Response[[]*decision.Record], limit int) []*decision.Record {
	all := []*decision.Record{}
	for _, r := range responses {
		for _, d := range r.Value {
			d.Replica = r.Replica
			all = append(all, d)
		}
	}
	slices.SortStableFunc(all, func(a, b *decision.Record) int { return b.Time.Compare(a.Time) })
	return all[:min(limit, len(all))]
}

// Explanation merges explanations of one pod, of which there is at least one: the latest decisions
// of all replicas, at most limit, and the rest of the replica that knows most about the pod. All
// replicas read the same cluster, so the rest differs only for a moment, or if a replica cannot
// read it, except that each replica requeues the pods that it rejected itself.
func Explanation(responses []Response[*explain.Document], limit int) *explain.Document {
	best := slices.MaxFunc(responses, func(a, b Response[*explain.Document]) int { return cmp.Compare(knows(a.Value), knows(b.Value)) }).Value
	merged := *best
	var decisions []Response[[]*decision.Record]
	for _, r := range responses {
		merged.Replicas = append(merged.Replicas, r.Replica)
		decisions = append(decisions, Response[[]*decision.Record]{Replica: r.Replica, Value: r.Value.Decisions})
	}
	merged.Decisions = Decisions(decisions, limit)
	for _, r := range responses {
		if merged.Node == "" && merged.Reason != nil && r.Value.Reason != nil && r.Value != best {
			merged.Reason.Merge(*r.Value.Reason)
		}
	}
	return &merged
}

// knows is larger for the explanation of a replica that knows more about the pod.
func knows(d *explain.Document) int {
	switch {
	case d.Node != "" && d.Uncalled == "":
		return 4
	case d.Node != "":
		return 3
	case d.Known && d.Error == "":
		return 2
	case d.Known:
		return 1
	}
	return 0
}
