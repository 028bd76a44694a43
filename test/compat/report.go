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

// row holds the outcomes of one pair of programs, with a KubeSchedulerConfiguration in one mode, in the order of the columns, and
// what failed.
type row struct {
	pair
	mode             string // "" with a Policy
	outcomes, errors []string
}

func (r *row) String() string {
	if r.policy {
		return r.pair.String()
	}
	return r.pair.String() + ", " + r.mode
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

// table is a part of the report.
type table struct {
	// name is in the comment that begins the table in a page.
	name    string
	columns []string
	rows    []row
	// complete is whether all releases of the table are tested.
	complete bool
}

// tables returns those with a KubeSchedulerConfiguration and with a Policy.
func (r *report) tables() []table {
	configured := table{name: "configurations"}
	policies := table{name: "policies"}
	for _, sc := range scenarios {
		configured.columns = append(configured.columns, sc.name)
	}
	for _, sc := range policyScenarios {
		policies.columns = append(policies.columns, sc.name)
	}
	for _, row := range r.rows {
		if row.policy {
			policies.rows = append(policies.rows, row)
		} else {
			configured.rows = append(configured.rows, row)
		}
	}
	policies.complete = len(policies.rows) == len(policySchedulers)
	configured.complete = len(configured.rows) == len(modes)*(len(pairsBeside(""))-len(policySchedulers))
	return []table{configured, policies}
}

// text returns the table in Markdown, with the columns in which rows differ, and what failed.
func (t *table) text(day string) string {
	var b strings.Builder
	var columns, same []string
	shown := make([][]string, len(t.rows))
	for i, column := range t.columns {
		if !slices.ContainsFunc(t.rows, func(r row) bool { return r.outcomes[i] != passed }) {
			same = append(same, column)
			continue
		}
		columns = append(columns, column)
		for j, r := range t.rows {
			shown[j] = append(shown[j], r.outcomes[i])
		}
	}
	mode := func(text string) string {
		if t.name == "policies" {
			return ""
		}
		return " " + text + " |"
	}
	fmt.Fprintf(&b, "Run on %s. Passed in all rows:\n%s.\n\n", day, strings.Join(same, ", "))
	fmt.Fprintf(&b, "| kube-apiserver | kube-scheduler |%s %s |\n", mode("calls with"), strings.Join(columns, " | "))
	b.WriteString("|" + strings.Repeat("---|", strings.Count(mode("-"), "|")+2+max(1, len(columns))) + "\n")
	var failures []string
	for i, row := range t.rows {
		fmt.Fprintf(&b, "| %s | %s |%s %s |\n", row.server, row.scheduler, mode(row.mode), strings.Join(shown[i], " | "))
		for _, e := range row.errors {
			failures = append(failures, fmt.Sprintf("* %s: %s\n", &row, strings.Join(strings.Fields(e), " ")))
		}
	}
	if len(failures) > 0 {
		b.WriteString("\n" + strings.Join(failures, ""))
	}
	return b.String()
}

// text returns the tables that have rows.
func (r *report) text() string {
	var texts []string
	for _, t := range r.tables() {
		if len(t.rows) > 0 {
			texts = append(texts, t.text(r.day))
		}
	}
	return strings.Join(texts, "\n")
}

// begin and end enclose a table in a page.
const (
	begin = "<!-- %s, written by make compat -->\n"
	end   = "<!-- end -->\n"
)

// write replaces the complete tables in the page.
func (r *report) write(page string) error {
	data, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text := string(data)
	for _, t := range r.tables() {
		mark := fmt.Sprintf(begin, t.name)
		before, rest, ok := strings.Cut(text, mark)
		_, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			return fmt.Errorf("%s has no lines %q and %q", page, strings.TrimSpace(mark), strings.TrimSpace(end))
		}
		if t.complete {
			text = before + mark + t.text(r.day) + end + after
		}
	}
	return os.WriteFile(page, []byte(text), 0o644)
}
