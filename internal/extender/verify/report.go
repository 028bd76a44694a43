package verify

import (
	"encoding/json"
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
	Sent   string `json:"sent"`   // a description of the request, without contents of the pod
	Got    string `json:"got"`    // status, size and the beginning of the response
	Detail string `json:"detail"` // the violation
}

// Result is the outcome of one rule.
type Result struct {
	Rule
	Outcome Outcome `json:"outcome"`
	// Why is the reason that the rule is not applicable.
	Why string `json:"why,omitempty"`
	// Findings are the first responses that violate the rule in different ways; Violations
	// counts all of them, and Checked the responses that the rule was checked on.
	Findings   []Finding `json:"findings,omitempty"`
	Violations int       `json:"violations"`
	Checked    int       `json:"checked"`
}

// Latency is how long kube-scheduler would wait for one kind of request: from
// sending it to the last byte of the response. Echo is the same request to a server
// in this process that reads it and responds, from memory, that all nodes fit.
type Latency struct {
	Verb      decision.Verb `json:"verb"`
	Mode      Mode          `json:"mode"`
	Nodes     int           `json:"nodes"`
	Imaginary int           `json:"imaginary"` // of Nodes, those the extender does not know
	Calls     int           `json:"calls"`

	P50     time.Duration `json:"p50Nanoseconds"`
	P99     time.Duration `json:"p99Nanoseconds"`
	EchoP50 time.Duration `json:"echoP50Nanoseconds"`
	EchoP99 time.Duration `json:"echoP99Nanoseconds"`
}

// Ratios returns the latencies relative to the echo server's, 0 when that was not
// measured.
func (l Latency) Ratios() (p50, p99 float64) {
	if l.EchoP50 <= 0 || l.EchoP99 <= 0 {
		return 0, 0
	}
	return float64(l.P50) / float64(l.EchoP50), float64(l.P99) / float64(l.EchoP99)
}

// Report is the result of Run.
type Report struct {
	URL   string          `json:"url"`
	Verbs []decision.Verb `json:"verbs"`
	Modes []Mode          `json:"modes"`
	// Results has one entry for each of Rules, in that order.
	Results   []Result  `json:"results"`
	Latencies []Latency `json:"latencies,omitempty"`
	// Notes are for the reader, for example about calls that were not made.
	Notes       []string      `json:"notes,omitempty"`
	Calls       int           `json:"calls"`
	Connections int           `json:"connections"`
	Took        time.Duration `json:"tookNanoseconds"`
	// Refused says that a connection was refused: nothing listens at the address, or a firewall
	// rejects it.
	Refused bool `json:"-"`
}

// OK reports whether no rule of severity error failed.
func (r *Report) OK() bool {
	return !slices.ContainsFunc(r.Results, func(result Result) bool {
		return result.Outcome == Failed && result.Severity == SeverityError
	})
}

// WriteJSON writes the report as one JSON object, with "ok" beside its fields.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(struct {
		OK bool `json:"ok"`
		*Report
	}{r.OK(), r})
}

var marks = map[Outcome]string{Passed: "✓", Failed: "✗", NotApplicable: "–"}

// WriteText writes a table of all rules, the latencies, and then for each failed
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
	r.writeLatencies(&text)
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

func (r *Report) writeLatencies(w io.Writer) {
	if len(r.Latencies) == 0 {
		return
	}
	fmt.Fprintf(w, "\nLatency as kube-scheduler sees it, and relative to a no-op server in this process:\n")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "verb\tmode\tnodes\tcalls\tp50\tp99\tp50 ×\tp99 ×\t\n")
	for _, l := range r.Latencies {
		p50, p99 := l.Ratios()
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t\n", l.Verb, l.Mode, l.Nodes, l.Calls,
			l.P50.Round(time.Microsecond), l.P99.Round(time.Microsecond), multiple(p50), multiple(p99))
	}
	table.Flush()
}

func multiple(ratio float64) string {
	if ratio == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", ratio)
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
