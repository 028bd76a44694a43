package explain

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/pending"
	"outboard.dev/outboard/internal/respond"
)

// Fetch reads an explanation from a running service. admin is its admin address as a URL
// (http://127.0.0.1:8081); query holds the parameters of Handler.
func Fetch(ctx context.Context, client *http.Client, admin string, query url.Values) (*Document, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(admin, "/")+Path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("admin address %q: %w", admin, err)
	}
	doc := new(Document)
	return doc, respond.Read(client, req, doc)
}

// Try asks a running service where the pods of a manifest would fit: see [TryHandler].
func Try(ctx context.Context, client *http.Client, admin string, manifest []byte, query url.Values) (*Tried, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(admin, "/")+TryPath+"?"+query.Encode(), bytes.NewReader(manifest))
	if err != nil {
		return nil, fmt.Errorf("admin address %q: %w", admin, err)
	}
	req.Header.Set("Content-Type", "application/yaml")
	tried := new(Tried)
	return tried, respond.Read(client, req, tried)
}

// Text writes the document as text. The error is that of w.
func (d *Document) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintln(&b, d.Verdict)
	if wait := d.Bound.Sub(d.Created); !d.Bound.IsZero() && wait >= 0 {
		after := wait.String()
		if wait < time.Second { // the API server truncates both times to seconds
			after = "less than a second"
		}
		fmt.Fprintf(&b, "It was bound at %s, %s after it was created.\n", d.Bound.UTC().Format(time.RFC3339), after)
	}
	if d.Unschedulable != "" {
		fmt.Fprintf(&b, "kube-scheduler last said: %s\n", decision.Plain(d.Unschedulable))
	}
	for _, hint := range d.Hints {
		fmt.Fprintln(&b, decision.Plain(hint))
	}
	if len(d.Holds) > 0 {
		fmt.Fprintf(&b, "It holds %s.\n", holdings(d.Holds))
	}
	if d.Annotation != "" {
		fmt.Fprintf(&b, "Its annotation %s says: %s\n", decision.Annotation, decision.Plain(d.Annotation))
	}
	switch {
	case d.Tried:
	case len(d.Decisions) == 0:
		b.WriteString("\nNo decision about the pod is recorded: no call has been about it, or too long ago, before a restart, or to another\nreplica. Each replica records its own decisions")
		if len(d.Replicas) > 0 {
			fmt.Fprintf(&b, "; these were asked: %s", strings.Join(d.Replicas, ", "))
		}
		b.WriteString(".\n")
	default:
		b.WriteString("\nDecisions, latest first:\n")
	}
	for _, r := range d.Decisions {
		if err := r.Text(&b); err != nil {
			return err
		}
	}
	for i := range d.Now {
		d.Now[i].text(&b, d.Reason)
	}
	d.remedies(&b)
	signals(&b, d.Signals)
	if d.Error != "" {
		fmt.Fprintf(&b, "\n%s\n", d.Error)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// text writes the profile; reason is why the pod waits, or nil.
func (p *Profile) text(b *strings.Builder, reason *pending.Reason) {
	if p.Unmanaged {
		fmt.Fprintf(b, "\nkube-scheduler does not call profile %s for the pod, which requests none of the profile's managedResources.\n", p.Profile)
		return
	}
	fmt.Fprintf(b, "\nNow, by profile %s: %d of %d nodes fit", p.Profile, p.Fit, p.Nodes)
	if excluded := p.excluded(); excluded > 0 {
		others := "others"
		if excluded == 1 {
			others = "other"
		}
		fmt.Fprintf(b, "; kube-scheduler excludes %d %s", excluded, others)
	}
	b.WriteString(".\n")
	for i := range p.Excluded {
		fmt.Fprintf(b, "  %s\n", &p.Excluded[i])
	}
	if reason != nil && reason.Profile == p.Profile {
		fmt.Fprintf(b, "  pending since %s", reason.Since.UTC().Format(time.RFC3339))
		if reason.Requeues > 0 {
			fmt.Fprintf(b, "; requeues: %d, last at %s", reason.Requeues, reason.LastRequeued.UTC().Format(time.RFC3339))
		}
		b.WriteString("\n")
	}
	if p.Refused != "" {
		fmt.Fprintf(b, "  A bind call would be refused: %s.\n", p.Refused)
	}
	if p.Error != "" {
		fmt.Fprintf(b, "  error: %s\n", p.Error)
	}
	for _, n := range p.Notes {
		for _, note := range n.Notes {
			fmt.Fprintf(b, "  %s: %s\n", n.Policy, note)
		}
	}
	if len(p.Explanations) > 0 {
		p.table(b)
		if rest := p.Nodes - len(p.Explanations); rest > 0 {
			fmt.Fprintf(b, "  … and %d more (--limit N shows more nodes, --node NAME one)\n", rest)
		}
		p.reasons(b)
		p.notes(b)
	}
}

func (p *Profile) excluded() int {
	sum := 0
	for _, x := range p.Excluded {
		sum += x.Nodes
	}
	return sum
}

// table writes the result of each policy for each node, in a short form.
func (p *Profile) table(b *strings.Builder) {
	table := decision.Table{Head: []string{"node", "fits", fmt.Sprintf("total of %d", p.MaxTotal)}}
	for _, o := range p.Explanations[0].Policies {
		name := o.Policy
		if o.Weight > 0 {
			name += fmt.Sprintf(" ×%d", o.Weight)
		}
		table.Head = append(table.Head, name)
	}
	for _, x := range p.Explanations {
		row := []string{x.Node, "yes", strconv.FormatInt(x.Total, 10)}
		if !x.Fits {
			row[1], row[2] = "no", "–"
		}
		if x.HoldsAllocation {
			row[1] += ", holds an allocation"
		}
		for _, o := range x.Policies {
			row = append(row, opinion(o))
		}
		table.Rows = append(table.Rows, row)
	}
	table.Text(b, "  ")
}

// opinion returns the score, or the code of the rejection with its numbers.
func opinion(o engine.PolicyOpinion) string {
	switch {
	case o.Code != "" && (o.Have != 0 || o.Want != 0):
		return strings.TrimRight(fmt.Sprintf("%s: has %d, needs %d %s", o.Code, o.Have, o.Want, o.Unit), " ")
	case o.Code != "":
		return o.Code
	case o.Scored:
		return strconv.FormatInt(o.Score, 10)
	}
	return "–"
}

// reasons explains the codes in the table.
func (p *Profile) reasons(b *strings.Builder) {
	written := map[string]bool{}
	for _, x := range p.Explanations {
		for _, o := range x.Policies {
			if o.Code == "" {
				continue
			}
			text := fmt.Sprintf("  %s: %s, says %s", o.Code, o.Text, o.Policy)
			if o.Unresolvable {
				text += " (preemption would not help)"
			}
			if !written[text] {
				written[text] = true
				fmt.Fprintln(b, text)
			}
		}
	}
}

// notes writes, below the table, which nominated pods count on each node, and the notes of
// policies.
func (p *Profile) notes(b *strings.Builder) {
	for _, x := range p.Explanations {
		named := len(x.Nominated)+len(x.Gets) > 0
		if named {
			fmt.Fprintf(b, "  %s\n", x.Node)
		}
		if len(x.Gets) > 0 {
			fmt.Fprintf(b, "      the pod would get %s\n", holdings(x.Gets))
		}
		if len(x.Nominated) > 0 {
			fmt.Fprintf(b, "      counts nominated pods: %s\n", strings.Join(x.Nominated, ", "))
		}
		for _, o := range x.Policies {
			for _, note := range o.Notes {
				if !named {
					fmt.Fprintf(b, "  %s\n", x.Node)
					named = true
				}
				fmt.Fprintf(b, "      %s: %s\n", o.Policy, note)
			}
		}
	}
}

// holdings lists amounts of units.
func holdings(all []decision.Allocation) string {
	var parts []string
	for _, h := range all {
		parts = append(parts, fmt.Sprintf("%d of %s, unit %s", h.Amount, h.Resource, h.Unit))
	}
	return strings.Join(parts, "; ")
}

// signals writes the state of the signals.
func signals(b *strings.Builder, all []Signal) {
	if len(all) == 0 {
		return
	}
	b.WriteString("\nSignals:\n")
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  name\tvalues\tstale\tnewest\tlast error")
	for _, s := range all {
		newest := "–"
		if !s.Newest.IsZero() {
			newest = s.Newest.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(table, "  %s\t%d\t%d\t%s\t%s\n", s.Name, s.Values, s.Stale, newest, s.Error)
	}
	table.Flush()
}
