package audit

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Report is the result of an audit, as text or JSON.
type Report struct {
	// The numbers of objects audited.
	Ledgers     int `json:"ledgers"`
	Allocations int `json:"allocations"`
	Nodes       int `json:"nodes"`
	Pods        int `json:"pods"`

	Findings []Finding `json:"findings"`
}

// NewReport returns a report of the findings in the input.
func NewReport(in Input, findings []Finding) *Report {
	r := &Report{Ledgers: len(in.Ledgers), Nodes: len(in.Nodes), Pods: len(in.Pods), Findings: findings}
	for i := range in.Ledgers {
		r.Allocations += len(in.Ledgers[i].Spec.Pods)
	}
	return r
}

// OK reports whether all findings are notes.
func (r *Report) OK() bool { return r.notes() == len(r.Findings) }

func (r *Report) notes() (notes int) {
	for _, f := range r.Findings {
		if f.Kind.Note() {
			notes++
		}
	}
	return notes
}

// WriteJSON writes the report as one JSON object, with a field "ok" in addition.
func (r *Report) WriteJSON(w io.Writer) error {
	out := struct {
		OK bool `json:"ok"`
		Report
	}{r.OK(), *r}
	if out.Findings == nil {
		out.Findings = []Finding{}
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}

// WriteText writes one line for each finding, and a summary.
func (r *Report) WriteText(w io.Writer) error {
	var text strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintln(&text, f)
	}
	fmt.Fprintf(&text, "ledgers: %d, allocations: %d, nodes: %d, pods: %d; ", r.Ledgers, r.Allocations, r.Nodes, r.Pods)
	if len(r.Findings) == 0 {
		text.WriteString("no findings\n")
	} else {
		fmt.Fprintf(&text, "findings: %d, notes: %d\n", len(r.Findings)-r.notes(), r.notes())
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// String returns the finding as one line of text.
func (f Finding) String() string {
	return fmt.Sprintf("%-13s  %s", f.Kind, f.text(f.Holders))
}

// About returns the text without the kind and the holders.
func (f Finding) About() string { return f.text(nil) }

func (f Finding) text(holders []Holder) string {
	var text strings.Builder
	text.WriteString(f.Resource)
	if f.Unit != "" {
		fmt.Fprintf(&text, " %s", f.Unit)
	}
	if f.Node != "" {
		fmt.Fprintf(&text, " on node %s", f.Node)
	}
	if f.CountedBy != "" {
		fmt.Fprintf(&text, ": %d of %d by %s", f.Used, f.Capacity, f.CountedBy)
	}
	for i, h := range holders {
		separator := ", "
		if i == 0 {
			separator = ": "
		}
		fmt.Fprintf(&text, "%s%s", separator, h)
	}
	if f.Detail != "" {
		fmt.Fprintf(&text, ": %s", f.Detail)
	}
	return text.String()
}

// String returns the pod's name and the amount it holds.
func (h Holder) String() string {
	name := "pod with UID " + string(h.UID)
	if h.Name != "" {
		name = h.Namespace + "/" + h.Name
	}
	if h.Amount == 0 {
		return name
	}
	return fmt.Sprintf("%s has %d", name, h.Amount)
}
