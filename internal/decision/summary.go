package decision

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Annotation is the key of the annotation with the [Summary] that a pod gets when it is bound.
const Annotation = "outboard.dev/decision"

// maxWhy bounds the annotation, because the API server bounds all annotations of a pod together,
// and those of allocations must be among them.
const maxWhy = 4 << 10

// Summary describes in one line why a pod is on the node, from the latest records about it, latest
// first. It is "" if they contain nothing about the node.
func Summary(records []*Record, node string) string {
	var parts []string
	for _, r := range records {
		if len(r.Top) > 0 {
			parts = append(parts, r.scored(node))
			break
		}
	}
	for _, r := range records {
		if r.Verb == Filter {
			if len(parts) == 0 && r.Fit == 1 {
				parts = append(parts, "not scored, because only one node is left") // kube-scheduler calls prioritize for two nodes or more
			}
			parts = append(parts, fmt.Sprintf("%d of %s fit", r.Fit, count(r.Nodes, "node")))
			for _, rejection := range r.Rejections {
				parts = append(parts, fmt.Sprintf("%d %s", rejection.Nodes, rejection.Text))
			}
			break
		}
	}
	return strings.Join(parts, "; ")
}

// scored describes how the node scored, or, if that is unknown, how the best nodes did.
func (r *Record) scored(node string) string {
	if r.Chosen != nil && r.Chosen.Node == node {
		return r.Chosen.text(r.MaxTotal) + r.Chosen.rank()
	}
	for i := range r.Top {
		if r.Top[i].Node == node {
			return r.Top[i].text(r.MaxTotal)
		}
	}
	if best, last := r.Top[0].Total, r.Top[len(r.Top)-1].Total; last < best {
		return fmt.Sprintf("the best %s scored %d to %d of %d", count(len(r.Top), "node"), best, last, r.MaxTotal)
	}
	return fmt.Sprintf("the best %s scored %d of %d", count(r.Ties, "node"), r.Top[0].Total, r.MaxTotal)
}

func (n *ScoredNode) text(maxTotal int64) string {
	scores := make([]string, 0, len(n.Scores)+1)
	for _, s := range n.Scores {
		scores = append(scores, fmt.Sprintf("%s %d×%d", s.Policy, s.Score, s.Weight))
	}
	if n.HoldsAllocation {
		scores = append(scores, "holds an allocation of the pod")
	}
	return fmt.Sprintf("scored %d of %d (%s)", n.Total, maxTotal, strings.Join(scores, ", "))
}

// rank describes how many nodes scored as much or more; "" if no other node did.
func (n *ChosenNode) rank() string {
	var parts []string
	if n.Better > 0 {
		parts = append(parts, fmt.Sprintf(", less than %s", count(n.Better, "other node")))
	}
	if n.Equal > 0 {
		parts = append(parts, fmt.Sprintf(", as much as %s", count(n.Equal, "other node")))
	}
	return strings.Join(parts, "")
}

// Why summarizes the latest decisions of each profile about a pod on its node, from the records
// about it, latest first; "" if there are none. If there are those of several profiles, it names
// them, first the given one. If the pod had to wait, it ends with the main reason of the latest
// call for which no node fit.
func Why(latest []*Record, profile, node string) string {
	records := map[string][]*Record{}
	profiles := []string{profile}
	waited := ""
	for _, r := range latest {
		if r.Error == "" && (r.Verb == Filter || r.Verb == Prioritize) {
			profiles = append(profiles, r.Profile)
			records[r.Profile] = append(records[r.Profile], r)
			if waited == "" && r.Verb == Filter && r.Fit == 0 && len(r.Rejections) > 0 {
				waited = fmt.Sprintf("; no node fit at %s: %d %s", r.Time.UTC().Format(time.RFC3339), r.Rejections[0].Nodes, r.Rejections[0].Text)
			}
		}
	}
	slices.Sort(profiles[1:])
	var decided, texts []string
	for _, p := range profiles {
		if text := Summary(records[p], node); text != "" && !slices.Contains(decided, p) {
			decided, texts = append(decided, p), append(texts, text)
		}
	}
	if len(decided) > 1 {
		for i, p := range decided {
			texts[i] = "profile " + p + ": " + texts[i]
		}
	}
	if len(texts) == 0 {
		return ""
	}
	why := strings.Join(texts, "; ") + waited
	if len(why) > maxWhy {
		why = strings.ToValidUTF8(why[:maxWhy], "") + "…"
	}
	return why
}
