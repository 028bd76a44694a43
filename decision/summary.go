package decision

import (
	"fmt"
	"strings"
)

// Summary says in one line why a pod is on the node, from the latest records
// about it, latest first. It is "" if they tell nothing about the node.
func Summary(records []*Record, node string) string {
	var parts []string
	if r, scored := find(records, node); scored != nil {
		scores := make([]string, 0, len(scored.Scores))
		for _, s := range scored.Scores {
			scores = append(scores, fmt.Sprintf("%s %d×%d", s.Policy, s.Score, s.Weight))
		}
		if scored.HoldsClaim {
			scores = append(scores, "holds a claim of the pod")
		}
		parts = append(parts, fmt.Sprintf("scored %d of %d (%s)", scored.Total, r.MaxTotal, strings.Join(scores, ", ")))
	} else if r != nil {
		parts = append(parts, fmt.Sprintf("scored after the %d best, which have %d to %d of %d",
			len(r.Top), r.Top[0].Total, r.Top[len(r.Top)-1].Total, r.MaxTotal))
	}
	for _, r := range records {
		if r.Verb == Filter {
			parts = append(parts, fmt.Sprintf("%d of %s fit", r.Fit, count(r.Asked, "node")))
			for _, rejection := range r.Rejections {
				parts = append(parts, fmt.Sprintf("%d %s", rejection.Nodes, rejection.Text))
			}
			break
		}
	}
	return strings.Join(parts, "; ")
}

// find returns the latest record that scored nodes, and the node's score if it is
// among the best of them.
func find(records []*Record, node string) (*Record, *ScoredNode) {
	for _, r := range records {
		if len(r.Top) == 0 {
			continue
		}
		for i := range r.Top {
			if r.Top[i].Node == node {
				return r, &r.Top[i]
			}
		}
		return r, nil
	}
	return nil, nil
}
