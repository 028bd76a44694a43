package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"outboard.dev/outboard/internal/decision"
)

// Outcome is the result of checking one rule.
type Outcome string

const (
	Passed        Outcome = "passed"
	Failed        Outcome = "failed"
	NotApplicable Outcome = "not applicable"
)

// Finding is one response that violates a rule.
type Finding struct {
	Sent   string // a description of the request, without contents of the pod
	Got    string // status, size and the beginning of the response
	Detail string // the violation
}

// Result is the outcome of one rule.
type Result struct {
	Rule
	Outcome Outcome
	// Why is the reason that the rule is not applicable.
	Why string
	// Findings are the first responses that violate the rule in different ways; Violations
	// counts all of them, and Checked the responses that the rule was checked on.
	Findings   []Finding
	Violations int
	Checked    int
}

// Report is the result of Run.
type Report struct {
	URL   string
	Verbs []decision.Verb
	Modes []Mode
	// Results has one entry for each of Rules, in that order.
	Results []Result
	// Notes are for the reader, for example about calls that were not made.
	Notes       []string
	Calls       int
	Connections int
	Took        time.Duration
}

// OK reports whether no rule of severity error failed.
func (r *Report) OK() bool {
	return !slices.ContainsFunc(r.Results, func(result Result) bool {
		return result.Outcome == Failed && result.Severity == SeverityError
	})
}

var marks = map[Outcome]string{Passed: "✓", Failed: "✗", NotApplicable: "–"}

// WriteText writes a table of all rules, and then for each failed
// rule its findings and the consequence. If no rule passed, because nothing
// responds, the table has no rules that are not applicable.
func (r *Report) WriteText(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s  verbs: %s  modes: %s  %d calls, %d connections, %s\n\n", printable(r.URL),
		joined(r.Verbs), joined(r.Modes), r.Calls, r.Connections, r.Took.Round(time.Millisecond))

	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	responds := slices.ContainsFunc(r.Results, func(result Result) bool { return result.Outcome == Passed })
	for _, result := range r.Results {
		if !responds && result.Outcome == NotApplicable {
			continue
		}
		statement := result.Statement
		if result.Outcome == NotApplicable {
			statement += " (" + result.Why + ")"
		}
		fmt.Fprintf(table, "%s %s\t%s\t%s\n", marks[result.Outcome], result.ID, result.Severity, statement)
	}
	table.Flush()
	for _, result := range r.Results {
		if result.Outcome == Failed {
			result.write(&text)
		}
	}
	for i, note := range r.Notes {
		if i == 0 {
			text.WriteString("\n")
		}
		fmt.Fprintf(&text, "note: %s\n", note)
	}
	fmt.Fprintf(&text, "\n%s\n", r.summary())
	_, err := io.WriteString(w, text.String())
	return err
}

func (r Result) write(w io.Writer) {
	fmt.Fprintf(w, "\n✗ %s (%s): %s\n", r.ID, r.Severity, r.Statement)
	for _, finding := range r.Findings {
		fmt.Fprintf(w, "    sent  %s\n    got   %s\n    why   %s\n", finding.Sent, finding.Got, finding.Detail)
	}
	if more := r.Violations - len(r.Findings); more > 0 {
		fmt.Fprintf(w, "    and %d more of %d responses\n", more, r.Checked)
	}
	fmt.Fprintf(w, "  In kube-scheduler: %s\n", r.Consequence)
}

func (r *Report) summary() string {
	count := make(map[Outcome]int)
	broken := make(map[Severity]int)
	for _, result := range r.Results {
		count[result.Outcome]++
		if result.Outcome == Failed {
			broken[result.Severity]++
		}
	}
	rules := "rules"
	if count[Passed] == 1 {
		rules = "rule"
	}
	text := fmt.Sprintf("%d %s passed, %d failed, %d not applicable", count[Passed], rules, count[Failed], count[NotApplicable])
	if count[Failed] > 0 {
		text += fmt.Sprintf(" (failed: %d error, %d warning, %d note)", broken[SeverityError], broken[SeverityWarning], broken[SeverityNote])
	}
	return text
}

func joined[T ~string](list []T) string {
	names := make([]string, len(list))
	for i, name := range list {
		names[i] = string(name)
	}
	return strings.Join(names, ", ")
}
