package decision

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Text writes the record for a person to read. Names and errors that hold
// characters no terminal should get are quoted. The error is that of w.
func (r *Record) Text(w io.Writer) error {
	var b strings.Builder
	r.headline(&b)
	if r.Error != "" {
		fmt.Fprintf(&b, "  error: %s\n", plain(r.Error))
	}
	for _, p := range r.Policies {
		switch {
		case p.Skipped != "":
			fmt.Fprintf(&b, "  %s was left out: %s\n", p.Name, plain(strings.TrimPrefix(p.Skipped, "policy "+p.Name+": ")))
		case p.Unconcerned:
			fmt.Fprintf(&b, "  %s does not concern this pod\n", p.Name)
		}
	}
	for i := range r.Rejections {
		r.Rejections[i].text(&b)
	}
	r.scores(&b)
	for _, p := range r.Preemptions {
		p.text(&b)
	}
	if r.PreemptionsLeftOut > 0 {
		fmt.Fprintf(&b, "    and %s\n", count(r.PreemptionsLeftOut, "more candidate node"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Record) headline(b *strings.Builder) {
	fmt.Fprintf(b, "%s  %-10s", r.Time.Format("15:04:05.000"), r.Verb)
	switch failed := r.Error != ""; {
	case r.Verb == Bind && failed:
		fmt.Fprintf(b, " not bound to %s", plain(r.Bound))
	case r.Verb == Bind:
		fmt.Fprintf(b, " bound to %s", plain(r.Bound))
	case failed:
		b.WriteString(" failed")
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
		fmt.Fprintf(b, " %d of %d %scandidate nodes kept", kept, len(r.Preemptions), listed)
	case r.Verb == Prioritize:
		fmt.Fprintf(b, " %s scored", count(r.Asked, "node"))
	default:
		fmt.Fprintf(b, " %d of %s fit", r.Fit, count(r.Asked, "node"))
		if r.Returned < r.Fit {
			fmt.Fprintf(b, ", the best %d returned", r.Returned)
		}
	}
	fmt.Fprintf(b, "  (%s, profile %s, view %d", r.Duration.Round(time.Microsecond), r.Profile, r.Generation)
	if r.Remembered {
		b.WriteString(", remembered")
	}
	b.WriteString(")\n")
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
			fmt.Fprintf(b, "      %s\n", plain(m.Node))
			continue
		}
		fmt.Fprintf(b, "      %s: has %d, needs %d %s\n", plain(m.Node), m.Have, m.Want, r.Unit)
	}
}

func (r *Record) scores(b *strings.Builder) {
	if len(r.Top) == 0 {
		return
	}
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "    node\ttotal of %d", r.MaxTotal)
	for _, s := range r.Top[0].Scores {
		fmt.Fprintf(table, "\t%s (weight %d)", s.Policy, s.Weight)
	}
	fmt.Fprintln(table)
	for _, n := range r.Top {
		fmt.Fprintf(table, "    %s\t%d", plain(n.Node), n.Total)
		if n.HoldsClaim {
			fmt.Fprint(table, " (holds a claim)")
		}
		for _, s := range n.Scores {
			if s.Raw == s.Score {
				fmt.Fprintf(table, "\t%d", s.Score)
			} else {
				fmt.Fprintf(table, "\t%d (raw %d)", s.Score, s.Raw)
			}
		}
		fmt.Fprintln(table)
	}
	table.Flush() // into a strings.Builder, which does not fail
}

func (p *Preemption) text(b *strings.Builder) {
	node := plain(p.Node)
	switch {
	case p.Dropped != "":
		fmt.Fprintf(b, "    %s: dropped: %s\n", node, p.Dropped)
	case len(p.Added) > 0:
		fmt.Fprintf(b, "    %s: %s given, added %s\n", node, count(p.Given, "victim"), plain(strings.Join(p.Added, ", ")))
	default:
		fmt.Fprintf(b, "    %s: %s given, none added\n", node, count(p.Given, "victim"))
	}
}

// plain returns the text in one line, quoted if it holds anything but printable
// characters: errors and, without a cluster, names are what a caller sent.
func plain(text string) string {
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
