package network

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The paths, as the headings of the page name them.
const (
	toOutboard  = "From kube-scheduler to Outboard"
	toAPIServer = "From Outboard to the API server"
)

// row is what the page says about a fault on a path.
type row struct {
	path, fault string
	waits       bool     // pods wait until the fault ends
	events      []string // each pod has an event with each of these parts
	metrics     []string // those that increase
	alerts      []string // the anchors of their sections
}

// name returns a name for the objects and the test of the row.
func (r row) name() string {
	prefix := map[string]string{toOutboard: "outboard-", toAPIServer: "apiserver-"}[r.path]
	return prefix + strings.ReplaceAll(r.fault, " ", "-")
}

const tableHeader = "| fault | what happens to pods | event | metrics and alert |\n|---|---|---|---|\n"

var (
	code      = regexp.MustCompile("`([^`]+)`")
	alertLink = regexp.MustCompile(`\(alerts\.md#([a-z]+)\)`)
)

// readPage returns the rows of the tables in docs/operations.md, which must have one for each fault on each path.
func readPage(t *testing.T, root string) []row {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	for _, path := range []string{toOutboard, toAPIServer} {
		_, section, _ := strings.Cut(string(page), "\n## "+path+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		_, table, found := strings.Cut(section, tableHeader)
		if !found {
			t.Fatalf("the section %q of docs/operations.md has no table %q", path, tableHeader)
		}
		var has []string
		for line := range strings.Lines(table) {
			if !strings.HasPrefix(line, "|") {
				break
			}
			r := readRow(t, path, strings.TrimSpace(line))
			for fault := range strings.SplitSeq(r.fault, ", ") {
				r.fault = fault
				has = append(has, fault)
				rows = append(rows, r)
			}
		}
		slices.Sort(has)
		if want := slices.Sorted(maps.Keys(faults)); !slices.Equal(has, want) {
			t.Fatalf("the section %q of docs/operations.md has the faults %q, want %q", path, has, want)
		}
	}
	return rows
}

func readRow(t *testing.T, path, line string) row {
	t.Helper()
	cells := strings.Split(strings.Trim(line, "| "), " | ")
	if len(cells) != 4 {
		t.Fatalf("docs/operations.md: the row has %d cells: %s", len(cells), line)
	}
	r := row{path: path, fault: cells[0], events: matches(code, cells[2]), metrics: matches(code, cells[3]), alerts: matches(alertLink, cells[3])}
	switch cells[1] {
	case "They wait.":
		r.waits = true
	case "They are bound.":
	default:
		t.Fatalf("docs/operations.md: what happens to pods is %q", cells[1])
	}
	if len(r.events) == 0 || len(r.metrics) == 0 || r.waits != (len(r.alerts) > 0) {
		t.Fatalf("docs/operations.md: the row lacks an event, a metric, or an alert for pods that wait: %s", line)
	}
	return r
}

func matches(pattern *regexp.Regexp, cell string) []string {
	var found []string
	for _, match := range pattern.FindAllStringSubmatch(cell, -1) {
		found = append(found, match[1])
	}
	return found
}

// The alerts of a row are about its metrics of Outboard. OutboardNotCalled is about pods that wait while no calls come, which a replica
// counts once a minute.
func TestAlertsOfThePage(t *testing.T) {
	root := filepath.Join("..", "..")
	alerts, err := os.ReadFile(filepath.Join(root, "deploy", "chart", "monitoring", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	expressions := map[string]string{"outboardnotcalled": ""}
	for _, match := range regexp.MustCompile(`- alert: (\w+)\n +expr: (.*)\n`).FindAllStringSubmatch(string(alerts), -1) {
		expressions[strings.ToLower(match[1])] = match[2]
	}
	for _, r := range readPage(t, root) {
		for _, alert := range r.alerts {
			about := func(metric string) bool {
				name, _, _ := strings.Cut(metric, "{")
				return strings.Contains(expressions[alert], name)
			}
			if calls := alert == "outboardnotcalled" && r.path == toOutboard; !calls && !slices.ContainsFunc(r.metrics, about) {
				t.Errorf("%s on the path %q: the alert %s is %q, and the metrics are %q", r.fault, r.path, alert, expressions[alert], r.metrics)
			}
		}
	}
}
