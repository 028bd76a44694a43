package main

import (
	"fmt"
	"os"
	"strings"
)

// The outcomes of scenarios.
const (
	passed = "passed"
	failed = "**failed**"

	// kept and lost say whether the scores of kube-scheduler's own plugins count the pods of nodes.
	kept = "kept"
	lost = "lost"

	// bypassed and waits say whether a pod is bound without an ignorable extender.
	bypassed = "bypassed"
	waits    = "waits"
)

// row holds the outcomes of one pair of programs in one mode, in the order of the scenarios, and what failed.
type row struct {
	pair
	mode             string
	outcomes, errors []string
}

// report is a run of the command.
type report struct {
	day  string
	rows []row
}

func (r *report) failures() int {
	n := 0
	for _, row := range r.rows {
		n += len(row.errors)
	}
	return n
}

// text returns the table in Markdown, and what failed.
func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Run on %s:\n\n| kube-apiserver | kube-scheduler | calls with |", r.day)
	for _, sc := range scenarios {
		fmt.Fprintf(&b, " %s |", sc.name)
	}
	b.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(scenarios)) + "\n")
	for _, row := range r.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", row.server, row.scheduler, row.mode, strings.Join(row.outcomes, " | "))
	}
	if r.failures() > 0 {
		b.WriteString("\n")
	}
	for _, row := range r.rows {
		for _, e := range row.errors {
			fmt.Fprintf(&b, "* %s, %s: %s\n", row.pair, row.mode, strings.Join(strings.Fields(e), " "))
		}
	}
	return b.String()
}

// begin and end enclose the report in a page.
const (
	begin = "<!-- written by make compat -->\n"
	end   = "<!-- end -->\n"
)

// write replaces the report in the page.
func (r *report) write(page string) error {
	data, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, _, ok := strings.Cut(string(data), begin)
	_, after, closed := strings.Cut(string(data), end)
	if !ok || !closed {
		return fmt.Errorf("%s has no lines %q and %q", page, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(page, []byte(before+begin+r.text()+end+after), 0o644)
}
