package main

import (
	"fmt"
	"os"
	"slices"
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

	// evicts is that pods are evicted on a node on which kube-scheduler would evict none; otherwise
	// the pod waits.
	evicts = "evicts"
)

// row holds the outcomes of one pair of programs in one mode, in the order of the scenarios, and what failed.
type row struct {
	pair
	mode             string
	outcomes, errors []string
}

func (r *row) String() string { return r.pair.String() + ", " + r.mode }

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

// complete reports whether all releases are tested.
func (r *report) complete() bool { return len(r.rows) == len(modes)*len(pairsBeside("")) }

// text returns the rows as a table in Markdown, with the columns in which they differ, and what failed.
func (r *report) text() string {
	var b strings.Builder
	var columns, same []string
	shown := make([][]string, len(r.rows))
	for i, sc := range scenarios {
		if !slices.ContainsFunc(r.rows, func(row row) bool { return row.outcomes[i] != passed }) {
			same = append(same, sc.name)
			continue
		}
		columns = append(columns, sc.name)
		for j, row := range r.rows {
			shown[j] = append(shown[j], row.outcomes[i])
		}
	}
	fmt.Fprintf(&b, "Run on %s. Passed in all rows:\n%s.\n\n", r.day, strings.Join(same, ", "))
	fmt.Fprintf(&b, "| kube-apiserver | kube-scheduler | calls with | %s |\n", strings.Join(columns, " | "))
	b.WriteString("|" + strings.Repeat("---|", 3+max(1, len(columns))) + "\n")
	var failures []string
	for i, row := range r.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", row.server, row.scheduler, row.mode, strings.Join(shown[i], " | "))
		for _, e := range row.errors {
			failures = append(failures, fmt.Sprintf("* %s: %s\n", &row, strings.Join(strings.Fields(e), " ")))
		}
	}
	if len(failures) > 0 {
		b.WriteString("\n" + strings.Join(failures, ""))
	}
	return b.String()
}

// begin and end enclose the table in a page.
const (
	begin = "<!-- configurations, written by make compat -->\n"
	end   = "<!-- end -->\n"
)

// write replaces the table in the page.
func (r *report) write(page string) error {
	data, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("%s has no lines %q and %q", page, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	if !r.complete() {
		return nil
	}
	return os.WriteFile(page, []byte(before+begin+r.text()+end+after), 0o644)
}
