package decision

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Text writes the record as text. It quotes names and errors with non-printable characters. The
// error is that of w.
func (r *Record) Text(w io.Writer) error {
	var b strings.Builder
	r.headline(&b)
	if r.Error != "" {
		fmt.Fprintf(&b, "  error: %s\n", Plain(r.Error))
	}
	if len(r.Allocations) > 0 {
		fmt.Fprintf(&b, "  allocated %s\n", r.allocated())
	}
	if r.Unmanaged {
		b.WriteString("  the pod requests none of the profile's managedResources, so no policy evaluated it\n")
	}
	if r.Bypassed {
		b.WriteString("  bypass is true, so no policy evaluated the pod\n")
	}
	if unknown := r.unknownClaims(); unknown != "" {
		fmt.Fprintf(&b, "  %s\n", unknown)
	}
	for _, p := range r.Policies {
		switch {
		case p.IgnoredError != "":
			fmt.Fprintf(&b, "  %s failed and was ignored: %s\n", p.Name, Plain(strings.TrimPrefix(p.IgnoredError, "policy "+p.Name+": ")))
		case p.Skipped && !r.Bypassed:
			fmt.Fprintf(&b, "  %s does not apply to this pod\n", p.Name)
		}
	}
	for i := range r.Rejections {
		r.Rejections[i].text(&b)
	}
	r.scores(&b)
	for i := range r.Preemptions {
		fmt.Fprintf(&b, "    %s\n", &r.Preemptions[i])
	}
	if r.PreemptionsLeftOut > 0 {
		fmt.Fprintf(&b, "    and %s\n", count(r.PreemptionsLeftOut, "more candidate node"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Record) headline(b *strings.Builder) {
	fmt.Fprintf(b, "%s  %-10s %s  (%s, profile %s, view %d", r.Time.Format("15:04:05.000"), r.Verb, r.outcome(), r.Duration.Round(time.Microsecond), r.Profile, r.Generation)
	if r.Replica != "" {
		fmt.Fprintf(b, ", replica %s", r.Replica)
	}
	b.WriteString(")\n")
}

// outcome returns what was decided, in a few words.
func (r *Record) outcome() string {
	switch failed := r.Error != ""; {
	case r.Verb == Bind && failed:
		return "not bound to " + Plain(r.Bound)
	case r.Verb == Bind:
		return "bound to " + Plain(r.Bound)
	case failed:
		return "failed"
	case r.Verb == Preempt:
		kept := 0
		for _, p := range r.Preemptions {
			if p.Dropped == "" {
				kept++
			}
		}
		listed := ""
		if r.PreemptionsLeftOut > 0 {
			listed = "listed "
		}
		return fmt.Sprintf("%d of %d %scandidate nodes kept", kept, len(r.Preemptions), listed)
	case r.Verb == Prioritize:
		return count(r.Nodes, "node") + " scored"
	case r.Returned < r.Fit:
		return fmt.Sprintf("%d of %s fit, the best %d returned", r.Fit, count(r.Nodes, "node"), r.Returned)
	}
	return fmt.Sprintf("%d of %s fit", r.Fit, count(r.Nodes, "node"))
}

// allocated returns the allocations of the pod, such as "6 of aliyun.com/gpu-mem, unit 1".
func (r *Record) allocated() string {
	all := make([]string, len(r.Allocations))
	for i, c := range r.Allocations {
		all[i] = fmt.Sprintf("%d of %s, unit %s", c.Amount, Plain(c.Resource), Plain(c.Unit))
	}
	return strings.Join(all, " and ")
}

// unknownClaims says which ResourceClaims no score counts; "" if there are none.
func (r *Record) unknownClaims() string {
	if len(r.UnknownClaims) == 0 {
		return ""
	}
	names := make([]string, len(r.UnknownClaims))
	for i, name := range r.UnknownClaims {
		names[i] = Plain(name)
	}
	return fmt.Sprintf("ResourceClaims not known to Outboard yet: %s (no score counts them)", strings.Join(names, ", "))
}

// List writes the records as a table with one line for each. The last column has the error, the
// reasons for which nodes were rejected, the scores of the chosen node, or of the best ones if that
// is unknown, or the allocations and the reason of a bind call. The error is that of w.
func List(w io.Writer, records []*Record) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TIME\tPOD\tVERB\tDECISION\tPROFILE\tREPLICA\tWHY")
	for _, r := range records {
		replica := r.Replica
		if replica == "" {
			replica = "–"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Time.UTC().Format(time.RFC3339), Plain(r.Pod.Namespace+"/"+r.Pod.Name), r.Verb, r.outcome(), r.Profile, replica, strings.Join(r.why(), ", "))
	}
	return table.Flush()
}

// why returns the error, the reasons for which nodes were rejected, each with its number of nodes,
// the scores of the chosen node, or of the best ones if that is unknown, or the allocations and the
// reason of a bind call; and which allocations no score counts.
func (r *Record) why() (all []string) {
	switch {
	case r.Error != "":
		all = []string{Plain(r.Error)}
	case r.Verb == Prioritize && r.Chosen != nil:
		all = []string{Plain(r.Chosen.Node) + " " + r.scored(r.Chosen.Node)}
	case r.Verb == Prioritize && len(r.Top) > 0:
		all = []string{r.scored("")}
	case r.Verb == Bind && len(r.Allocations) > 0 && r.Summary != "":
		all = []string{"allocated " + r.allocated() + "; " + Plain(r.Summary)}
	case r.Verb == Bind && len(r.Allocations) > 0:
		all = []string{"allocated " + r.allocated()}
	case r.Verb == Bind && r.Summary != "":
		all = []string{Plain(r.Summary)}
	default:
		for i := range r.Rejections {
			all = append(all, fmt.Sprintf("%d %s", r.Rejections[i].Nodes, r.Rejections[i].Text))
		}
	}
	if unknown := r.unknownClaims(); unknown != "" {
		all = append(all, unknown)
	}
	return all
}

// MarshalJSON implements json.Marshaler: the fields, and what [List] shows of them in words.
func (r *Record) MarshalJSON() ([]byte, error) {
	type fields Record
	says := struct {
		*fields
		Outcome string   `json:"outcome"`
		Why     []string `json:"why,omitempty"`
	}{(*fields)(r), r.outcome(), r.why()}
	if r.Unmanaged {
		says.Outcome = "not managed: all nodes fit"
	}
	if r.Bypassed {
		says.Outcome = "bypass: " + says.Outcome
	}
	for i := range says.Why {
		if i < len(r.Rejections) && r.Error == "" && len(r.Rejections[i].Nearest) > 0 && r.Rejections[i].Unit != "" {
			m := r.Rejections[i].Nearest[0]
			says.Why[i] += fmt.Sprintf("; the nearest, %s, has %d, needs %d %s", Plain(m.Node), m.Have, m.Want, r.Rejections[i].Unit)
		}
	}
	for i := range r.Preemptions {
		says.Why = append(says.Why, r.Preemptions[i].String())
	}
	return json.Marshal(says)
}

func (r *Rejection) text(b *strings.Builder) {
	by := r.Policy
	if by == "" {
		by = "Outboard"
	}
	fmt.Fprintf(b, "  %s rejected by %s: %s", count(r.Nodes, "node"), by, r.Text)
	if r.Unresolvable {
		b.WriteString(" (preemption would not help)")
	}
	b.WriteString("\n")
	for _, m := range r.Nearest {
		if r.Unit == "" {
			fmt.Fprintf(b, "      %s\n", Plain(m.Node))
			continue
		}
		fmt.Fprintf(b, "      %s: has %d, needs %d %s\n", Plain(m.Node), m.Have, m.Want, r.Unit)
	}
}

// scores writes the best nodes, how many more have the same total, and the chosen node.
func (r *Record) scores(b *strings.Builder) {
	if len(r.Top) == 0 {
		return
	}
	table := Table{Head: []string{"node", fmt.Sprintf("total of %d", r.MaxTotal)}}
	for _, s := range r.Top[0].Scores {
		table.Head = append(table.Head, fmt.Sprintf("%s ×%d", s.Policy, s.Weight))
	}
	listed := false
	for i := range r.Top {
		chosen := r.Chosen != nil && r.Chosen.Node == r.Top[i].Node
		listed = listed || chosen
		table.Rows = append(table.Rows, r.Top[i].cells(chosen))
	}
	if r.Chosen != nil && !listed {
		table.Rows = append(table.Rows, r.Chosen.cells(true))
	}
	table.Text(b, "    ")
	if r.Ties > len(r.Top) {
		fmt.Fprintf(b, "    %s have the total %d\n", count(r.Ties, "node"), r.Top[0].Total)
	}
	if r.Chosen != nil && !listed && r.Chosen.Better > 0 {
		fmt.Fprintf(b, "    the chosen node scored%s\n", strings.TrimPrefix(r.Chosen.rank(), ","))
	}
}

func (n *ScoredNode) cells(chosen bool) []string {
	cells := []string{Plain(n.Node), strconv.FormatInt(n.Total, 10)}
	if chosen {
		cells[0] += " (chosen)"
	}
	if n.HoldsAllocation {
		cells[1] += " (holds an allocation)"
	}
	for _, s := range n.Scores {
		cells = append(cells, strconv.FormatInt(s.Score, 10))
	}
	return cells
}

// String returns what was decided about the node, as one line.
func (p *Preemption) String() string {
	node := Plain(p.Node)
	switch {
	case p.Dropped != "":
		return node + ": dropped: " + p.Dropped
	case len(p.Added) > 0:
		return fmt.Sprintf("%s: %s proposed, added %s", node, count(p.Given, "victim"), Plain(strings.Join(p.Added, ", ")))
	}
	return fmt.Sprintf("%s: %s proposed, none added", node, count(p.Given, "victim"))
}

// Plain returns the text on one line, quoted if it has non-printable characters: errors and,
// without a cluster, names come from the caller.
func Plain(text string) string {
	text = strings.ReplaceAll(text, "\n", "; ")
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
